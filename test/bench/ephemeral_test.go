package bench

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

// measureEphemeral alternately starts servers with and without --ephemeral.
func measureEphemeral(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	h := hosts.New(t, wire, "passing", hosts.Options{})
	h.Coracle("kubectl", "version", "--client") // unpacks
	for range runs {
		for _, kind := range []struct {
			name string
			args []string
		}{{"kept", nil}, {"ephemeral", []string{"--ephemeral"}}} {
			h.Run("sh", "-c", "mkdir -p /var/lib/coracle/data; rm -rf /var/lib/coracle/[!d]* /etc/coracle /run/coracle")
			began := time.Now()
			s := h.Start(kind.args...)
			h.Coracle("wait", "--timeout", "60s")
			r.add(kind.name+" server, fresh: node Ready", "s", 0, readyAt(t, h, began, state.Node, "node-ready"))
			began = time.Now()
			hundredObjects(t, h)
			r.add(kind.name+" server: 100 objects, one after the other", "s", 0, time.Since(began).Seconds())
			written := 0.0
			for _, half := range []string{state.ControlPlane, state.Node} {
				pid, err := s.ChildPID(half)
				if err != nil {
					t.Fatal(err)
				}
				written += measure(t, pid).written
			}
			r.add(kind.name+" server: bytes written until then", "MB", 0, written/1e6)
			began = time.Now()
			stop(t, s)
			r.add(kind.name+" server: end", "s", 0, time.Since(began).Seconds())
			if kind.args == nil {
				h.Coracle("reset", "--yes")
				h.Coracle("kubectl", "version", "--client")
			}
		}
	}
	h.Kill()
}

func hundredObjects(t *testing.T, h *hosts.Host) {
	t.Helper()
	maps := h.Client().CoreV1().ConfigMaps("default")
	for i := range 100 {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("passing", i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
