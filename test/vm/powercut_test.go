package vm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// writers write at the same time.
const writers = 4

// client is a client of the machine's API server, from outside of the machine.
func (s *story) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(s.m.Run("cat", "/etc/coracle/kubeconfig.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.Timeout, config.QPS = "https://"+s.m.Outside(api), time.Minute, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// powerCut takes the power away while writers write, once or as often as the kind says: each third time soon after the boot. It looks afterwards
// for each write that was acknowledged, and whether all comes back by itself.
func (s *story) powerCut(t *testing.T) {
	var written []string
	lost := 0
	for n := range max(1, s.cuts) {
		many := 500
		if n%3 == 1 {
			many = 60
		}
		acknowledged := s.writeUntilCut(t, n, many)
		written = append(written, acknowledged...)
		if len(acknowledged) < 50 {
			t.Errorf("only %d writes were acknowledged", len(acknowledged))
		}
		up := s.m.Boot()
		began := time.Now()
		s.ready(t)
		t.Logf("cut after %d acknowledged writes; up after %s, ready after %s more", len(acknowledged), up.Round(time.Second), time.Since(began).Round(time.Second))
		lost = s.lost(t, written)
		if lost > 0 {
			t.Errorf("%d of %d acknowledged writes are lost", lost, len(written))
		}
		s.facts["power cuts"], s.facts["acknowledged before the cut"], s.facts["lost"] = fmt.Sprint(n+1), fmt.Sprint(len(written)), fmt.Sprint(lost)
		s.well(t, 3)
	}
}

// writeUntilCut writes, takes the power away after so many writes, and returns those that were acknowledged.
func (s *story) writeUntilCut(t *testing.T, round, many int) (acknowledged []string) {
	client := s.client(t)
	ctx, stop := context.WithCancel(t.Context())
	var lock sync.Mutex
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("written-%d-%d-%d", round, w, i)
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name}}
				if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
					continue
				}
				lock.Lock()
				if acknowledged = append(acknowledged, name); len(acknowledged) == many {
					close(enough)
				}
				lock.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(s.m.Within(podsWithin)):
	}
	s.m.Cut()
	stop()
	wg.Wait()
	return acknowledged
}

// lost is the number of writes that are not there.
func (s *story) lost(t *testing.T, written []string) (lost int) {
	list, err := s.client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range list.Items {
		found[object.Name] = object.Data["name"]
	}
	for _, name := range written {
		if found[name] != name {
			lost++
		}
	}
	return lost
}
