package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
)

// patienceOfOutlived: with an expired certificate a node tries once a minute to get another one, and its kubelet, which needs the former for that, twice.
const patienceOfOutlived = 3 * time.Minute

// nodeOutlives cuts an agent off until its certificates have ended.
func nodeOutlives(a *arena) []*hosts.Host {
	return a.outlive(a.Agents[0], time.Minute, time.Minute)
}

// serverOutlives cuts a server off until all its certificates have ended. It signs new ones itself, a minute after its start at the earliest, and those of
// its kubelet when they have nearly ended; but the kubelet works with what it has until then.
func serverOutlives(a *arena) []*hosts.Host {
	return a.outlive(a.Servers[a.random.IntN(len(a.Servers))], 90*time.Second, time.Minute)
}

// outlive starts a host with certificates that end soon, and cuts it off until they have ended.
func (a *arena) outlive(h *hosts.Host, life, kubelets time.Duration) []*hosts.Host {
	if err := a.Running(h).Stop(); err != nil {
		a.t.Errorf("stopping %s: %v", h.Name, err)
	}
	began := time.Now()
	for _, file := range certificates(h) {
		ends := began.Add(life)
		if strings.HasPrefix(filepath.Base(file), "kubelet-") {
			ends = began.Add(kubelets)
		}
		hosts.Reissue(a.t, a.Servers[0], file, began, ends)
	}
	a.Start(h)
	if _, err := a.healed(began, []*hosts.Host{h}, patience); err != nil {
		a.t.Errorf("%s is not back with short-lived certificates: %v", h.Name, err)
	}
	a.Links.Isolate(h)
	cut := time.Now()
	if cut.After(began.Add(kubelets * 2 / 3)) {
		a.t.Errorf("%s took too long to start: its certificates may have been renewed before it was cut off", h.Name)
	}
	<-time.After(time.Until(began.Add(life)) + time.Duration(a.random.IntN(10_000))*time.Millisecond)
	a.t.Logf("%s was cut off for %s", h.Name, short(time.Since(cut)))
	a.Links.Heal()
	return []*hosts.Host{h}
}

// certificates are the files with a host's certificates, without those of authorities.
func certificates(h *hosts.Host) (files []string) {
	for _, pattern := range []string{"node/pki/*.crt", "node/pki/*-current.pem", "server/pki/*.crt", "server/pki/etcd/*.crt"} {
		found, _ := filepath.Glob(h.Data(pattern))
		for _, file := range found {
			if name := filepath.Base(file); !strings.HasSuffix(name, "ca.crt") && !strings.Contains(name, "ca-") { // those are authorities'
				files = append(files, file)
			}
		}
	}
	return files
}

// renewed waits until all certificates of the hosts are valid for long again, and until what other parts than the kubelet see is new: a Service.
func renewed(a *arena, hurt []*hosts.Host) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-", Namespace: namespace}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	service, err := a.direct[a.Servers[0].Name].CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.await("the certificates are renewed, and kube-proxy is served", func() (err error) {
		for _, h := range hurt {
			for _, file := range certificates(h) {
				err = errors.Join(err, lasts(file))
			}
			rules, failed := h.Try("nft", "list", "table", "ip", "kube-proxy")
			if !strings.Contains(rules, service.Spec.ClusterIP+" ") {
				err = errors.Join(err, failed, fmt.Errorf("kube-proxy on %s does not know a new Service", h.Name))
			}
		}
		return err
	})
}

// lasts returns an error unless the certificate in a file is valid for an hour.
func lasts(file string) error {
	file = hosts.Resolve(file)
	key := file
	if name, ok := strings.CutSuffix(file, ".crt"); ok {
		key = name + ".key"
	}
	pair, err := tls.LoadX509KeyPair(file, key)
	if err == nil && time.Until(pair.Leaf.NotAfter) < time.Hour {
		err = fmt.Errorf("%s is valid until %s only", file, pair.Leaf.NotAfter)
	}
	return err
}
