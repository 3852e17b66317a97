package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/test/hosts"
)

// testCorefileReadsNoFiles has a service account that may edit only the Corefile try to read root's files: their content must appear in
// no event, log or answer.
func testCorefileReadsNoFiles(t *testing.T, h *hosts.Host) {
	const who, planted = "system:serviceaccount:default:dns-editor", "hunter2.of.root"
	h.Run("sh", "-c", "printf '192.0.2.66 "+planted+"\\n' > /var/lib/coracle/server/planted && chmod 600 /var/lib/coracle/server/planted")
	h.Kubectl("create", "serviceaccount", "dns-editor")
	h.Kubectl("-n", "kube-system", "create", "role", "dns-editor", "--verb=get,update,patch", "--resource=configmaps", "--resource-name=coredns")
	h.Kubectl("-n", "kube-system", "create", "rolebinding", "dns-editor", "--role=dns-editor", "--serviceaccount=default:dns-editor")
	log := func() string { return h.Coracle("logs", "--component", "dns") }
	edit := func(corefile string) {
		t.Helper()
		taken := func() int {
			return strings.Count(log(), "serving ") + strings.Count(log(), "not using the Corefile")
		}
		before := taken()
		h.Run("sh", "-c", "cat > /tmp/patch.json <<'END'\n"+fmt.Sprintf(`{"data":{"Corefile":%q}}`, corefile)+"\nEND")
		h.Kubectl("-n", "kube-system", "--as="+who, "patch", "configmap", "coredns", "--type=merge", "--patch-file=/tmp/patch.json")
		hosts.Eventually(t, time.Minute, func() error {
			if taken() == before {
				return fmt.Errorf("%q has not been read:\n%s", corefile, log())
			}
			return nil
		})
	}
	corefile := h.Kubectl("-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	const file, key = "/var/lib/coracle/server/planted", "/var/lib/coracle/server/pki/ca.key"
	for _, directive := range []string{
		"file " + file + " x", "hosts " + file, "hosts /etc/shadow", "file " + key + " x", "file ../.." + file + " y",
		"import" + " " + file, "forward x /proc/self/environ", "forward x tls://192.0.2.1 {\ntls " + file + " " + file + " " + file + "\n}",
		"template IN A x {\nanswer \"{{ .Zone }}\"\n}\nimport " + file, "acl {\n{$PATH}\n}",
	} {
		edit(strings.Replace(corefile, "{", "{\n"+directive+"\n", 1))
		if out, _ := inClient(h, "nslookup -type=a "+planted); strings.Contains(out, "192.0.2.66") {
			t.Errorf("%q: a file of root answers a query: %s", directive, out)
		}
	}
	for what, text := range map[string]string{
		"an event":   h.Kubectl("get", "events", "-A", "-o", "json"),
		"the log":    log(),
		"the status": h.Coracle("status", "-o", "json"),
	} {
		for _, content := range []string{planted, "192.0.2.66", "PRIVATE KEY", "root:", "/var/lib/coracle/bin:"} {
			if strings.Contains(text, content) {
				t.Errorf("%s has %q, which is in a file or a variable of root's process: %s", what, content, text)
			}
		}
	}
	edit(corefile)
	h.Run("rm", file)
	expect(t, "10.43.0.1", func() (string, error) { return inClient(h, "nslookup kubernetes.default.svc.cluster.local") })

	pid := strings.TrimSpace(h.Run("pidof", "coracle-dns"))
	status := h.Run("cat", "/proc/"+pid+"/status")
	for _, want := range []string{fmt.Sprintf("Uid:\t%d\t", clusterdns.UserID), "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("the name server's process has no %q in %s", want, status)
		}
	}
	h.Run("kill", "-9", pid)
	expect(t, "10.43.0.1", func() (string, error) { return inClient(h, "nslookup kubernetes.default.svc.cluster.local") })
	if err := contains("status", h.Coracle("status"), fmt.Sprintf("runs as user %d", clusterdns.UserID)); err != nil {
		t.Error(err)
	}
}
