package e2e

import (
	"bufio"
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

// testAudit looks up in the audit log what people did, and finds nothing there of what happens by itself.
func testAudit(t *testing.T, h *hosts.Host) {
	began := time.Now().UTC().Format(time.RFC3339)
	h.Kubectl("create", "namespace", "audited")
	h.Kubectl("-n", "audited", "create", "secret", "generic", "treasure", "--from-literal=word=never-in-a-log")
	h.Kubectl("-n", "audited", "get", "secret", "treasure")
	h.Kubectl("-n", "audited", "get", "configmaps")
	if _, err := h.TryCoracle("kubectl", "-n", "audited", "delete", "secret", "treasure", "--as=mallory"); err == nil {
		t.Error("mallory may delete Secrets")
	}
	h.Kubectl("exec", "client", "--", "true")
	out := h.Coracle("audit", "--since", began)
	for _, want := range []string{
		"  system:admin  create  secrets  audited/treasure  201  ", "  system:admin  get  secrets  audited/treasure  200  ",
		"  system:admin as mallory  delete  secrets  audited/treasure  403  ", "  system:admin  get  pods/exec  default/client  101  ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the audit log lacks %q:\n%s", want, out)
		}
	}
	for _, unwanted := range []string{"never-in-a-log", "  get  configmaps  ", "  leases", "  events", "/status", "system:kube-controller-manager  get", "system:node:solo  get", "system:node:solo  patch"} {
		if strings.Contains(out, unwanted) || strings.Contains(h.Coracle("audit", "-o", "json"), unwanted) {
			t.Errorf("the audit log has %q", unwanted)
		}
	}
	if out := h.Coracle("audit", "--since", began, "--user", "mallory", "--namespace", "audited", "--resource", "secrets"); strings.Count(out, "\n") != 1 {
		t.Errorf("mallory's requests are %q", out)
	}
	if info, err := os.Stat(h.Data("log", "audit", "audit.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log's mode is %v, %v", info.Mode(), err)
	}
	followed := h.Command("timeout", "60", hosts.Bin(t), "audit", "-f", "-n", "0", "--namespace", "audited", "--resource", "configmaps", "--verb", "delete")
	lines, err := followed.StdoutPipe()
	if err == nil {
		err = followed.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = followed.Process.Kill(); _ = followed.Wait() }()
	seen := make(chan string)
	go func() {
		line, _ := bufio.NewReader(lines).ReadString('\n') // "" at the end
		seen <- line
	}()
	for n := 0; ; n++ { // it may not follow yet when the first is deleted
		h.Kubectl("-n", "audited", "create", "configmap", fmt.Sprint("followed-", n))
		h.Kubectl("-n", "audited", "delete", "configmap", fmt.Sprint("followed-", n))
		select {
		case line := <-seen:
			if !strings.Contains(line, "  system:admin  delete  configmaps  audited/followed-") {
				t.Errorf("followed: %q", line)
			}
		case <-time.After(time.Second):
			continue
		}
		break
	}
	h.Kubectl("delete", "namespace", "audited", "--wait=false")
}
