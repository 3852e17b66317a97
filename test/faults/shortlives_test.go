package faults

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// shortLife is the shortest life of certificates that can be configured.
const shortLife = 3 * time.Minute

// TestShortLives has a cluster work for an hour with certificates that live for three minutes, so that each is renewed thirty times: no request of a
// client with a token fails, logs and exec reach all nodes, and nothing is restarted.
func TestShortLives(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	c := verdicts.Class{Name: "endurance", Kinds: []string{"3-minute-certificates"}, Long: 1}
	c.Each(t, func(t *testing.T, _ string, _ uint64, row *verdicts.Row) {
		a := newArenaOf(t, hosts.Plan{Servers: 3, Agents: 1, Images: true}, func(h *hosts.Host) {
			if strings.HasPrefix(h.Name, "agent") {
				return // it takes the setting from its servers
			}
			if err := os.WriteFile(h.Path("/etc/coracle/config.yaml"), []byte("certificate-life: 3m\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		for _, h := range a.Hosts() {
			a.Servers[0].Apply(fmt.Sprintf(web, "web-"+h.Name, 1, h.Name))
			a.Servers[0].Kubectl("rollout", "status", "--timeout=5m", "deployment/web-"+h.Name)
		}
		w := a.tokenWriters()
		looks, turn := 0, time.NewTicker(oneTurn/3)
		defer turn.Stop()
		for began := time.Now(); time.Since(began) < anHour; looks++ {
			<-turn.C
			a.reachNodes(t, a.Servers[looks%len(a.Servers)])
			a.leavesAreYoung(t)
		}
		row.Acknowledged = w.end(t)
		row.Seen = fmt.Sprintf("%d requests of clients with tokens; %d times logs and exec on each node", row.Acknowledged, looks)
		a.undisturbed(t, len(a.Hosts()))
	})
}

// tokenWriters are clients as pods are: with a token in a file that is renewed, and with the authority that they have read once.
type tokenWriters struct {
	stop   context.CancelFunc
	group  sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []string
}

// tokenWriters has a client on each host write forty times a second, all together.
func (a *arena) tokenWriters() *tokenWriters {
	a.t.Helper()
	server := a.Servers[0]
	server.Kubectl("create", "serviceaccount", "writer")
	server.Kubectl("create", "rolebinding", "writer", "--clusterrole=edit", "--serviceaccount=default:writer")
	file := filepath.Join(a.t.TempDir(), "token")
	renew := func() error {
		token, err := server.TryCoracle("kubectl", "create", "token", "writer", "--duration=10m")
		if err != nil {
			return err
		}
		return atomicfile.Write(file, []byte(strings.TrimSpace(token)), 0o600)
	}
	if err := renew(); err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &tokenWriters{stop: stop}
	w.group.Go(func() {
		for tick := time.Tick(5 * time.Minute); ; { // as the kubelet, before it ends
			select {
			case <-ctx.Done():
				return
			case <-tick:
				if err := renew(); err != nil {
					w.note("renewing the token", err)
				}
			}
		}
	})
	for _, h := range a.Hosts() {
		config, err := a.Config(h, hosts.Balancer)
		if err != nil {
			a.t.Fatal(err)
		}
		config = rest.AnonymousClientConfig(config)
		config.BearerTokenFile, config.Dial = file, h.Dial
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			a.t.Fatal(err)
		}
		w.group.Go(func() { w.write(ctx, client, h.Name, time.Duration(len(a.Hosts()))*25*time.Millisecond) })
	}
	return w
}

func (w *tokenWriters) write(ctx context.Context, client kubernetes.Interface, name string, beat time.Duration) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written-on-" + name}, Data: map[string]string{"n": fmt.Sprint(n)}}
		w.group.Go(func() {
			try, cancel := context.WithTimeout(context.Background(), normal.timeout)
			defer cancel()
			var err error
			if n == 0 {
				_, err = client.CoreV1().ConfigMaps("default").Create(try, one, metav1.CreateOptions{})
			} else {
				_, err = client.CoreV1().ConfigMaps("default").Update(try, one, metav1.UpdateOptions{})
			}
			w.note(name, err)
		})
	}
}

func (w *tokenWriters) note(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if err != nil {
		w.failed = append(w.failed, time.Now().UTC().Format("15:04:05.000 ")+name+": "+brief(err))
	}
}

func (w *tokenWriters) end(t *testing.T) int {
	t.Helper()
	w.stop()
	w.group.Wait()
	t.Logf("%d requests, %d failed", w.asked, len(w.failed))
	for _, one := range w.failed[:min(20, len(w.failed))] {
		t.Error(one)
	}
	return w.asked
}

// reachNodes reads logs and executes a command on each node, and asks for their metrics, through one server.
func (a *arena) reachNodes(t *testing.T, server *hosts.Host) {
	t.Helper()
	for _, h := range a.Hosts() {
		for _, command := range [][]string{{"logs", "deployment/web-" + h.Name}, {"exec", "deployment/web-" + h.Name, "--", "echo", "started"}} {
			if out, err := server.TryCoracle(append([]string{"kubectl"}, command...)...); err != nil || !strings.Contains(out, "started") {
				t.Errorf("%s from %s: %v, %q", strings.Join(command, " "), server.Name, err, out)
			}
		}
	}
	if out, err := server.TryCoracle("kubectl", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"); err != nil {
		t.Errorf("metrics from %s: %v, %q", server.Name, err, out)
	}
}

// leavesAreYoung checks that no certificate has come near its end.
func (a *arena) leavesAreYoung(t *testing.T) {
	t.Helper()
	for _, h := range a.Hosts() {
		for _, file := range certificates(h) {
			data, err := os.ReadFile(hosts.Resolve(file))
			if err != nil {
				continue // it is being replaced
			}
			block, _ := pem.Decode(data)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(cert.NotAfter); left > shortLife || left < shortLife/12 {
				t.Errorf("%s is valid for %s", file, left.Round(time.Second))
			}
		}
	}
}
