// Package install tests the installer on machines: Debian with systemd, and rules of other programs in the firewall.
package install

import (
	"embed"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

//go:embed testdata
var testdata embed.FS

// TestInstall tests the life of an installation, of a server and an agent. The steps build on each other.
func TestInstall(t *testing.T) {
	slots.Take(t)
	site := machines.Open(t)
	s := &story{server: boot(t, site, "edge-1"), agent: boot(t, site, "edge-2")}
	s.serverBefore, s.agentBefore = take(s.server), take(s.agent)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"mistakes change nothing", s.mistakes},
		{"a start that fails is taken back", s.failedStart},
		{"install.sh installs a server", s.install},
		{"the unit is a good one", s.unit},
		{"pods run", s.pods},
		{"again changes nothing", s.again},
		{"other arguments restart the service and not the pods", s.change},
		{"a wrong token is taken back", s.wrongToken},
		{"install.sh installs an agent", s.join},
		{"a reboot brings everything back", s.reboot},
		{"install.sh with another version upgrades", s.upgrade},
		{"killall ends everything and keeps the data", s.killall},
		{"uninstall leaves nothing", s.uninstall},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

// story is the state that the steps share.
type story struct {
	server, agent             *machines.Machine
	serverBefore, agentBefore snapshot
	pid                       string // of the service's main process
	pods0                     string
}

// boot starts a machine on which other programs have left files and rules.
func boot(t *testing.T, site *machines.Site, name string) *machines.Machine {
	t.Helper()
	m := site.Boot(t, name, machines.Options{})
	for _, file := range []string{"docker.rules", "foreign.nft", "setup"} {
		m.Write("/etc/site/"+file, read(t, "testdata/"+file))
	}
	m.Write("/etc/systemd/system/site.service", read(t, "testdata/site.service"))
	m.Run("systemctl", "enable", "--quiet", "--now", "site")
	script, err := os.ReadFile("../../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	m.Write("/etc/site/install.sh", string(script))
	return m
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := testdata.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// snapshot is the content of a machine.
type snapshot struct {
	files, kernel, processes machines.Inventory
	firewall                 string
}

func take(m *machines.Machine) snapshot {
	return snapshot{m.Files(), m.Kernel(), m.Processes(), m.Firewall()}
}

// unchanged fails the test if the machine's content differs from before.
func unchanged(t *testing.T, m *machines.Machine, before snapshot) {
	t.Helper()
	m = m.For(t)
	after := take(m)
	diff := slices.Concat(machines.Diff(before.files, after.files), machines.Diff(before.kernel, after.kernel),
		machines.Diff(before.processes, after.processes))
	diff = slices.DeleteFunc(diff, allowed)
	if len(diff) > 0 {
		t.Errorf("%s has changed:\n%s", m.Name, strings.Join(diff, "\n"))
	}
	if after.firewall != before.firewall {
		t.Errorf("the firewall of %s has changed, from\n%s\nto\n%s", m.Name, before.firewall, after.firewall)
	}
}

// leftovers are differences that are allowed after an uninstallation, each with its reason.
var leftovers = []struct{ begins, why string }{
	{"+ /root/.kube", "kubectl's own cache, which is the user's"},
	{"~ sysctl /proc/sys/net/ipv4/ip_forward: 0 -> 1", "forwarding stays on: other programs may rely on it"},
	{"~ sysctl /proc/sys/net/ipv6/conf/all/forwarding: 0 -> 1", "as before"},
	{"~ sysctl /proc/sys/net/bridge/bridge-nf-call-iptables: 0 -> 1", "as before"},
}

func allowed(line string) bool {
	for _, l := range leftovers {
		if strings.HasPrefix(line, l.begins) {
			return true
		}
	}
	return false
}

// sh runs the script with a local file and the given environment.
func sh(m *machines.Machine, environment string, args ...string) (string, error) {
	return m.TrySh(environment+` INSTALL_CORACLE_INSECURE_UNSIGNED=true INSTALL_CORACLE_FILE=`+machines.Bin+` sh /etc/site/install.sh "$@" 2>&1`, args...)
}

// newcomersLine returns the line of docs/gateway.md that installs the server of a site from nothing.
func newcomersLine(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A site from nothing\n")
	_, line, found := strings.Cut(section, "\n    curl ")
	if !found {
		t.Fatal("the page has no line with curl")
	}
	line, _, _ = strings.Cut(line, "\n")
	return "curl " + line
}

// types types a line that pipes install.sh into a shell, with a local file. In place of GitHub, which is not reached, curl has the script at the address of
// the latest release.
func types(m *machines.Machine, line string) (string, error) {
	return m.TrySh(`curl() {
	[ "$*" = "-sfL $(sed -n 's|.*INSTALL_CORACLE_MIRROR:-\(.*\)/download}$|\1|p' /etc/site/install.sh)/latest/download/install.sh" ] && cat /etc/site/install.sh
}
export CORACLE_NODE_LABEL=place=edge INSTALL_CORACLE_INSECURE_UNSIGNED=true INSTALL_CORACLE_FILE=` + machines.Bin + `
{ ` + line + `; } 2>&1`)
}

func (s *story) mistakes(t *testing.T) {
	m := s.server.For(t)
	tests := []struct {
		name, script string
		code         int
		says         string
	}{
		{"bad flag", machines.Bin + " install -- server --no-such-flag", 2, "unknown flag --no-such-flag"},
		{"no role", machines.Bin + " install -- serve", 2, `"serve" cannot be installed`},
		{"port taken", `busybox nc -l -p 6443 & timeout 60 sh -c "until grep -q :192B /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done"; code=0; ` + machines.Bin + " install || code=$?; kill $!; exit $code", 3, "6443"},
		{"wrong bin dir", machines.Bin + " install --bin-dir /proc/no", 1, "/proc/no"},
	}
	for _, tt := range tests {
		_, err := m.TrySh(tt.script)
		if machines.Code(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want exit code %d and %q", tt.name, err, tt.code, tt.says)
		}
	}
	unchanged(t, m, s.serverBefore)
}

// failedStart installs a server that cannot become ready.
func (s *story) failedStart(t *testing.T) {
	m := s.server.For(t)
	_, err := m.Try(machines.Bin, "install", "--wait", "6s", "--", "server", "--kube-scheduler-arg=no-such-flag=1")
	if err == nil || !strings.Contains(err.Error(), "nothing of it is left") {
		t.Errorf("it says: %v", err)
	}
	if code := machines.Code(err); code != 1 && code != 4 {
		t.Errorf("exit code %d", code)
	}
	unchanged(t, m, s.serverBefore)
}

func (s *story) install(t *testing.T) {
	m := s.server.For(t)
	began := time.Now()
	out, err := sh(m, `CORACLE_NODE_LABEL='place=edge "1"' CORACLE_TLS_SAN=a.example.org`, "server", "--token", "test.sesamsesam", "--bad")
	if machines.Code(err) != 2 {
		t.Errorf("%v, %s: a mistake in the variables has exit code %d", err, out, machines.Code(err))
	}
	unchanged(t, m, s.serverBefore)
	out, err = types(m, newcomersLine(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("install.sh took %s and said:\n%s", time.Since(began).Round(10*time.Millisecond), out)
	if !strings.Contains(out, "Node edge-1 is Ready after") || !strings.Contains(out, "/etc/coracle/kubeconfig.yaml") {
		t.Error("it does not say what is to be said")
	}
	if got := m.Run("systemctl", "cat", "coracle"); !strings.Contains(got, "--acme-email=ops@example.com") {
		t.Errorf("the unit has not the settings of the line: %s", got)
	}
	if got := m.Run("kubectl", "get", "node", "edge-1", "--show-labels", "--no-headers"); !strings.Contains(got, "place=edge") || !strings.Contains(got, " Ready ") {
		t.Errorf("the node is %s", got)
	}
	if got := m.Sh(`stat -c '%a' /etc/coracle/coracle.env /etc/coracle/install/coracle.json | tr '\n' ' '; readlink /usr/local/bin/kubectl`); got != "600 600 coracle" {
		t.Errorf("modes and link: %s", got)
	}
	if got := m.Run("bash", "-ic", `. /usr/share/bash-completion/bash_completion; _completion_loader coracle; complete -p coracle`); !strings.Contains(got, "__start_coracle") {
		t.Errorf("completion: %s", got)
	}
	s.pid = mainPID(m)
}

func mainPID(m *machines.Machine) string {
	return m.Run("systemctl", "show", "--property=MainPID", "--value", "coracle")
}

func (s *story) unit(t *testing.T) {
	m := s.server.For(t)
	if out := m.Sh("systemd-analyze verify /etc/systemd/system/coracle.service 2>&1"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	got := m.Run("systemctl", "show", "coracle", "--property=Type,KillMode,Delegate,Restart,TasksMax,UnitFileState,StatusText")
	for _, want := range []string{"Type=notify", "KillMode=process", "Delegate=yes", "Restart=always", "TasksMax=infinity", "UnitFileState=enabled", "StatusText=ready"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	if got := m.Sh(`tr '\0' '\n' </proc/$1/environ | grep ^CORACLE`, s.pid); got != "CORACLE_NODE_LABEL=place=edge" {
		t.Errorf("the service's variables: %s", got)
	}
	if out := m.Run("coracle", "check", "cis"); !strings.Contains(out, "/etc/systemd/system/coracle.service has mode 600 and owner 0:0") {
		t.Errorf("the CIS benchmark: %s", out)
	}
}

// pods creates pods, with a Service and a port of the host.
func (s *story) pods(t *testing.T) {
	m := s.server.For(t)
	m.Sh("coracle images import /mnt/images/agnhost.tar")
	m.Write("/tmp/pods.yaml", strings.ReplaceAll(read(t, "testdata/pods.yaml"), "${AGNHOST}", imageutils.GetE2EImage(imageutils.Agnhost)))
	m.Run("kubectl", "apply", "-f", "/tmp/pods.yaml")
	s.answers(t)
	s.pods0 = podIDs(m)
}

// answers waits until the pods run and can be reached through their Service, its node port, and their host port.
func (s *story) answers(t *testing.T) {
	t.Helper()
	m := s.server.For(t)
	m.Run("kubectl", "rollout", "status", "deployment/web", "--timeout=300s")
	m.Run("kubectl", "wait", "--for=condition=Ready", "pod/at-host", "--timeout=300s")
	hosts.Eventually(t, 2*time.Minute, func() error {
		_, err := m.TrySh(`ip=$(kubectl get node edge-1 -o jsonpath='{.status.addresses[0].address}')
curl -sf --max-time 2 http://$ip:30080/hostname; curl -sf --max-time 2 http://$ip:8088/hostname
kubectl exec at-host -- /agnhost connect --timeout=2s web:80`)
		return err
	})
}

// podIDs are the containers of all pods; a restart of one would change them.
func podIDs(m *machines.Machine) string {
	return m.Run("kubectl", "get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID}{'\\n'}{end}")
}

func (s *story) again(t *testing.T) {
	m := s.server.For(t)
	out, err := types(m, newcomersLine(t))
	if err != nil || !strings.Contains(out, "nothing was changed") {
		t.Errorf("%s, %v", out, err)
	}
	if out := m.Run(machines.Bin, "install"); !strings.Contains(out, "nothing was changed") {
		t.Errorf("without any argument: %s", out)
	}
	if now := mainPID(m); now != s.pid {
		t.Errorf("the service was restarted: its process was %s and is %s", s.pid, now)
	}
	m.Run("rm", "/usr/local/bin/crictl", "/usr/local/bin/coracle-killall")
	m.Run(machines.Bin, "install")
	m.Sh("crictl --version; test -x /usr/local/bin/coracle-killall")
}

func (s *story) change(t *testing.T) {
	m := s.server.For(t)
	_, err := m.Try(machines.Bin, "install", "--wait", "4s", "--", "server", "--node-name", "edge-1", "--kube-scheduler-arg=no-such-flag=1")
	if err == nil || !strings.Contains(err.Error(), "the installation is as it was before") {
		t.Errorf("settings that cannot work: %v", err)
	}
	m.Run("coracle", "wait", "--quiet", "--timeout", "3m")
	if out := m.Run("systemctl", "cat", "coracle"); strings.Contains(out, "no-such-flag") {
		t.Errorf("the unit is still %s", out)
	}
	m.Run(machines.Bin, "install", "--", "server", "--node-name", "edge-1", "--tls-san=b.example.org")
	if now := mainPID(m); now == s.pid {
		t.Error("the service was not restarted")
	}
	if now := podIDs(m); now != s.pods0 {
		t.Errorf("pods were restarted: they were\n%s\nand are\n%s", s.pods0, now)
	}
	s.answers(t)
	// The shims are in a scope of their own, so systemd finds no process that a service has left.
	if out := m.Sh(`journalctl --no-pager --unit=coracle | grep -E "left-over|remains running" || true
for p in $(pidof containerd-shim-runc-v2); do grep -q /coracle-pods.scope /proc/$p/cgroup || cat /proc/$p/cgroup; done`); out != "" {
		t.Errorf("of the pods' shims systemd says and has: %s", out)
	}
	if out := m.Run("systemctl", "show", "coracle-pods.scope", "--property=ActiveState,Delegate,CollectMode"); out != "Delegate=yes\nActiveState=active\nCollectMode=inactive-or-failed" {
		t.Errorf("the shims' scope: %s", out)
	}
}

func (s *story) wrongToken(t *testing.T) {
	m := s.agent.For(t)
	url := "CORACLE_URL=https://" + s.server.IP() + ":6443"
	good := s.server.For(t).Run("coracle", "token", "create")
	wrong := good[:len(good)-4] + "aaaa"
	_, err := sh(m, url+" CORACLE_TOKEN="+wrong)
	if code := machines.Code(err); code != 5 {
		t.Errorf("exit code %d of %v", code, err)
	}
	if err != nil && strings.Contains(strings.TrimPrefix(err.Error()[strings.Index(err.Error(), "exit status"):], ""), wrong) {
		t.Errorf("the token is in the error: %v", err)
	}
	unchanged(t, m, s.agentBefore)
}

func (s *story) join(t *testing.T) {
	m := s.agent.For(t)
	token := s.server.For(t).Run("coracle", "token", "create")
	m.Write("/tmp/join", "export CORACLE_URL=https://"+s.server.IP()+":6443 CORACLE_TOKEN="+token+"\n")
	out, err := sh(m, ". /tmp/join;")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("install.sh said:\n%s", out)
	if strings.Contains(out, token) {
		t.Error("the token was printed")
	}
	if out := m.Sh(`grep -rl "$1" /etc /usr/local /run/systemd 2>/dev/null || true; journalctl --no-pager | grep -c "$1" || true`, token); out != "/etc/coracle/coracle-agent.env\n0" {
		t.Errorf("the token is in %s", out)
	}
	s.server.For(t).Run("kubectl", "wait", "--for=condition=Ready", "node/edge-2", "--timeout=10s")
	if out := m.Run(machines.Bin, "install"); !strings.Contains(out, "nothing was changed") {
		t.Errorf("again, without variables: %s", out)
	}
}

func (s *story) reboot(t *testing.T) {
	down := s.server.For(t).Reboot()
	began := time.Now()
	s.agent.For(t).PullPlug()
	hosts.Eventually(t, 3*time.Minute, func() error {
		_, err := s.server.Try("coracle", "wait", "--quiet", "--timeout=1m")
		return err
	})
	s.answers(t)
	s.server.For(t).Run("kubectl", "wait", "--for=condition=Ready", "node", "--all", "--timeout=300s")
	t.Logf("the server took %s to go down; %s after the boot all was well again", down.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// next is the executable of the next version, if it is beside the one under test.
const next = machines.Coracle + "/next/coracle"

// upgrade runs the script again without arguments and variables. Package test/upgrade has the other tests.
func (s *story) upgrade(t *testing.T) {
	m := s.agent.For(t)
	if _, err := m.Try("test", "-x", next); err != nil {
		t.Skipf("there is no %s: scripts/next makes it", next)
	}
	before := m.Run("coracle", "version")
	out := m.Sh("INSTALL_CORACLE_INSECURE_UNSIGNED=true INSTALL_CORACLE_FILE=" + next + " sh /etc/site/install.sh 2>&1")
	if after := m.Run("coracle", "version"); after == before || !strings.Contains(out, "Node edge-2 is Ready after") {
		t.Errorf("the version was %s and is %s, and install.sh said:\n%s", before, after, out)
	}
	s.server.For(t).Run("kubectl", "wait", "--for=condition=Ready", "node/edge-2", "--timeout=10s")
}

// killall ends everything like a reboot.
func (s *story) killall(t *testing.T) {
	m := s.server.For(t)
	secret := m.Run("kubectl", "create", "configmap", "kept", "--from-literal=a=b")
	m.Run("coracle-killall")
	kernel := slices.Concat(machines.Diff(s.serverBefore.kernel, m.Kernel()), machines.Diff(s.serverBefore.processes, m.Processes()))
	if kernel = slices.DeleteFunc(kernel, allowed); len(kernel) > 0 {
		t.Errorf("left in the kernel:\n%s", strings.Join(kernel, "\n"))
	}
	if got := m.Firewall(); got != s.serverBefore.firewall {
		t.Errorf("the firewall is now\n%s", got)
	}
	if got := m.Run("systemctl", "list-units", "--all", "--no-legend", "coracle-pods.scope"); got != "" {
		t.Errorf("the shims' scope is still there: %s", got)
	}
	m.Run("systemctl", "start", "coracle")
	if got := m.Run("kubectl", "get", "configmap", "kept", "-o", "name"); got != "configmap/kept" {
		t.Errorf("%s, and then %s", secret, got)
	}
	s.answers(t)
}

func (s *story) uninstall(t *testing.T) {
	server, agent := s.server.For(t), s.agent.For(t)
	if _, err := server.Try("coracle", "uninstall"); machines.Code(err) != 2 {
		t.Errorf("without anybody to ask: %v", err)
	}
	began := time.Now()
	agent.Run("coracle-uninstall", "--yes")
	server.Write("/etc/coracle/note", "somebody's\n")
	server.Run("coracle", "uninstall", "--yes")
	t.Logf("both uninstalled after %s", time.Since(began).Round(time.Millisecond))
	if got := server.Run("ls", "/etc/coracle"); got != "note" {
		t.Errorf("/etc/coracle holds %s", got)
	}
	server.Run("rm", "-r", "/etc/coracle")
	unchanged(t, server, s.serverBefore)
	unchanged(t, agent, s.agentBefore)
}
