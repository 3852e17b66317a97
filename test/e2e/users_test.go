package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testUsers: the control plane is a user without privileges, which can read none of root's keys and add no keys of its own, and root
// gives nothing away that it may have linked to. A manifest that only root can read is applied.
func testUsers(t *testing.T, h *hosts.Host) {
	var report struct {
		Processes []struct {
			Name      string
			PID, User int
		}
	}
	if err := json.Unmarshal([]byte(h.Coracle("status", "-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	user := 0
	for _, p := range report.Processes {
		if p.Name != "control-plane" {
			if p.User != 0 {
				t.Errorf("%s runs as user %d", p.Name, p.User)
			}
			continue
		}
		user = p.User
		status := h.Run("cat", fmt.Sprintf("/proc/%d/status", p.PID))
		for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Groups:\t \n"} {
			if !strings.Contains(status, want) {
				t.Errorf("the control plane: not %q in %s", want, status)
			}
		}
	}
	if user == 0 {
		t.Fatalf("the control plane runs as root: %+v", report)
	}
	as := func(script string) (string, error) {
		return h.Try("setpriv", fmt.Sprint("--reuid=", user), fmt.Sprint("--regid=", user), "--clear-groups", "--no-new-privs", "sh", "-c", script)
	}
	for _, attack := range []string{
		"cat /var/lib/coracle/server/pki/ca.key", "ls /var/lib/coracle/server/pki", "cat /run/coracle/config.json",
		"touch /run/coracle/copies/manifests/x.yaml", "touch /var/lib/coracle/server/token", "mv /run/coracle/state/front.json /run/coracle/state/x",
		"ln -sf /etc/shadow /run/coracle/state/node.json", "cat /var/lib/coracle/log/coracle.log",
	} {
		if out, err := as(attack); err == nil {
			t.Errorf("%s: succeeded: %s", attack, out)
		}
	}
	if out, err := as("cat /var/lib/coracle/server/control-plane/own-nodes.json"); err != nil {
		t.Errorf("its own files: %s %v", out, err)
	}
	path := h.Data("manifests", "secret.yaml") // which only root can read
	if err := os.WriteFile(path, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: of-root, namespace: default}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, 30*time.Second, func() error {
		_, err := h.TryCoracle("kubectl", "get", "configmap", "of-root")
		return err
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
