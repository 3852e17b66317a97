package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testResetQuorum loses two of three servers and resets the quorum on the third, while it runs and while it is stopped.
// The other two return with their old data and join again without help.
func testResetQuorum(t *testing.T, c *hosts.Cluster) {
	survivor := c.Servers[2]
	for _, running := range []bool{true, false} {
		name := map[bool]string{true: "running", false: "stopped"}[running]
		t.Run(name, func(t *testing.T) {
			c := c.For(t)
			kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept-" + name}}
			if _, err := survivor.Client().CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if out, err := survivor.TryCoracle("cluster", "reset-quorum", "--yes"); err == nil || !strings.Contains(err.Error(), "there is nothing to reset") {
				t.Errorf("with a quorum: %s %v", out, err)
			}
			if !running {
				if err := c.Running(survivor).Stop(); err != nil {
					t.Error(err)
				}
				if out, err := survivor.TryCoracle("cluster", "reset-quorum", "--yes"); err == nil || !strings.Contains(err.Error(), "agree with each other without this one") {
					t.Errorf("stopped, while the others have a quorum: %s %v", out, err)
				}
				memory := survivor.Data("server", "cluster.json")
				known, err := os.ReadFile(memory)
				if err == nil {
					err = os.WriteFile(memory, []byte("damaged"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				if out, err := survivor.TryCoracle("cluster", "reset-quorum", "--yes"); err == nil || !strings.Contains(err.Error(), "is not known") {
					t.Errorf("with a damaged list of servers: %s %v", out, err)
				}
				if err := os.WriteFile(memory, known, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, h := range c.Servers[:2] {
				h.Kill()
			}
			began := time.Now()
			t.Log(survivor.Coracle("cluster", "reset-quorum", "--yes"))
			t.Logf("reset after %.1f s", time.Since(began).Seconds())
			if !running {
				if left := survivor.Run("find", "/var/lib/coracle/server/etcd", "-user", "root"); left != "" {
					t.Errorf("the reset leaves files of root's: %s", left)
				}
				c.Start(survivor)
			}
			survivor.Coracle("wait", "--timeout", "3m")
			t.Logf("ready after %.1f s", time.Since(began).Seconds())
			if _, err := survivor.Client().CoreV1().ConfigMaps("default").Get(t.Context(), kept.Name, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			began = time.Now()
			for _, h := range c.Servers[:2] {
				c.Boot(h)
			}
			c.AwaitHealthy(began, 3*time.Minute)
			t.Logf("all are back %.1f s after their boot", time.Since(began).Seconds())
		})
	}
}
