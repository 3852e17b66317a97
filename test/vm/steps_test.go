package vm

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
)

//go:embed testdata/app.yaml
var app string

// The steps wait as long as their work may take on a busy machine with two cores, times the machine's slowness.
const (
	readyWithin = 40 * time.Second
	podsWithin  = 40 * time.Second
	answerIn    = 15 * time.Second
)

func (s *story) boot(t *testing.T) {
	took := s.m.Boot()
	for began := time.Now(); s.m.Slower > tooSlow && time.Since(began) < quietWithin; {
		s.m.Slower = s.m.measure()
	}
	if s.m.Slower > tooSlow {
		t.Fatalf("a loop takes %.0f times as long as here: let other programs that need the processors end, and try again", s.m.Slower)
	}
	s.facts["boot"] = took.Round(time.Second).String()
	s.facts["accelerator"] = s.m.Accelerator()
	s.facts["slower"] = fmt.Sprintf("%.1f", s.m.Slower)
	s.facts["kernel"] = s.m.Run("uname", "-r")
	s.facts["cgroups"] = s.m.Run("stat", "-f", "-c", "%T", "/sys/fs/cgroup")
	s.facts["systemd"] = s.m.Sh("systemctl --version | sed -n '1s/systemd \\([0-9]*\\).*/\\1/p'")
	if s.prepare != "" {
		s.m.Sh(s.prepare)
	}
	if s.again {
		s.m.Off(s.m.Within(readyWithin))
		s.m.Boot()
	}
	s.is(t)
	script, err := os.ReadFile("../../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	s.m.Write("/root/install.sh", string(script))
	s.before = s.m.Inventory()
	t.Logf("booted after %s; a loop takes %.1f times as long as here; %v", took, s.m.Slower, s.facts)
}

// is looks whether the machine is what it is called.
func (s *story) is(t *testing.T) {
	t.Helper()
	for script, want := range s.has {
		if got, err := s.m.TrySh(script); err != nil || got != want {
			t.Fatalf("this is another kind of machine: %s prints %q instead of %q, %v", script, got, want, err)
		}
	}
}

// installs runs install.sh with a file.
func (s *story) installs(t *testing.T, file string) {
	t.Helper()
	began := time.Now()
	out := s.m.Sh(`INSTALL_CORACLE_INSECURE_UNSIGNED=true INSTALL_CORACLE_FILE=`+file+` INSTALL_CORACLE_BIN_DIR=`+s.binDir+` INSTALL_CORACLE_WAIT=`+s.m.Within(readyWithin).String()+
		` sh /root/install.sh "$@" 2>&1`, s.server...)
	t.Logf("install.sh took %s and said:\n%s", time.Since(began).Round(time.Second), out)
	if !strings.Contains(out, "is Ready after") {
		t.Error("it does not say that the node is Ready")
	}
}

// commit prints the commit that coracle was built from.
const commit = `coracle version | sed -n '1s/.*(\([0-9a-f]*\),.*/\1/p'`

func (s *story) install(t *testing.T) {
	began := time.Now()
	s.installs(t, Bin)
	s.report.Version = s.m.Sh(commit)
	errors := s.m.Sh(`journalctl --no-pager --output=cat --unit=coracle | grep -E ' ERROR |level=error' || true`)
	s.facts["errors in the log of the first start"] = fmt.Sprint(len(strings.FieldsFunc(errors, func(r rune) bool { return r == '\n' })))
	t.Logf("errors in the log of the first start:\n%s", errors)
	s.facts["install to Ready"] = time.Since(began).Round(time.Second).String()
}

func (s *story) app(t *testing.T) {
	s.m.Sh("coracle images import " + Images + "/*.tar") // the same path in a container
	s.m.Write("/tmp/app.yaml", strings.ReplaceAll(app, "${AGNHOST}", imageutils.GetE2EImage(imageutils.Agnhost)))
	s.m.Sh("kubectl apply -f - </tmp/app.yaml")
	s.running(t)
	s.pods = s.containers()
}

// running waits until all Deployments are as they should be.
func (s *story) running(t *testing.T) {
	t.Helper()
	limit := "--timeout=" + s.m.Within(podsWithin).String()
	s.m.Run("kubectl", "rollout", "status", "deployment", "-l", "app!=none", limit)
	s.m.Run("kubectl", "wait", "--for=condition=Ready", "pod", "-l", "run", "--field-selector=status.phase=Running", limit)
}

// containers are the containers of the pods that stay; a restart of one changes them.
func (s *story) containers() string {
	out := s.m.Run("kubectl", "get", "pods", "-l", "run", "--field-selector=status.phase=Running", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID}{'\\n'}{end}")
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// eventually tries a script until it succeeds.
func (s *story) eventually(t *testing.T, script string) {
	t.Helper()
	hosts.Eventually(t, s.m.Within(answerIn), func() error {
		_, err := s.m.TrySh(script)
		return err
	})
}

// network asks for names and through each kind of Service, from the node and from outside of the machine. The policy always lets in the node itself; to a node in
// a container its machine is somebody from outside.
func (s *story) network(t *testing.T) {
	s.eventually(t, `kubectl exec deployment/client -- probe lookup web.default.svc.cluster.local; kubectl exec deployment/client -- probe lookup kubernetes.default`)
	ports := "30090 8090 30091 8091"
	if s.engine != "" {
		ports = "30091 8091"
	}
	s.eventually(t, `ip=$(kubectl get node -o jsonpath='{.items[0].status.addresses[0].address}'); for port in `+ports+`; do curl -sS -m 30 http://$ip:$port/hostname; done`)
	if out, err := s.m.TrySh(`kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}' | grep .`); err != nil {
		t.Errorf("the load balancer has no address: %s %v", out, err)
	}
	s.outside(t)
}

// between is the name of a step that one kind of machine skips.
const between = "Service and policy between pods"

// between asks through a Service as the pod that the policy lets in, and as one that it does not.
func (s *story) between(t *testing.T) {
	s.eventually(t, `kubectl exec deployment/client -- probe get http://web:8090/hostname`)
	if out, err := s.m.TrySh(`kubectl exec deployment/stranger -- probe get http://web:8090/hostname`); err == nil {
		t.Errorf("the policy lets a stranger in: %s", out)
	} else if !strings.Contains(err.Error(), "probe:") {
		t.Errorf("the stranger could not ask: %v", err)
	}
}

// connected is both.
func (s *story) connected(t *testing.T) {
	t.Helper()
	s.network(t)
	if s.skip[between] == "" {
		s.between(t)
	}
}

// outside asks from outside of the machine, through a NodePort and a load balancer, and for what the policy does not let in.
func (s *story) outside(t *testing.T) {
	get := func(port int, limit time.Duration) (string, error) {
		client := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + s.m.Outside(port) + "/hostname")
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		name, err := io.ReadAll(response.Body)
		return string(name), err
	}
	for _, port := range []int{30091, 8091} {
		hosts.Eventually(t, s.m.Within(answerIn), func() error {
			name, err := get(port, s.m.Within(5*time.Second))
			if err == nil && !strings.HasPrefix(name, "stranger-") {
				err = fmt.Errorf("%q answers at port %d", name, port)
			}
			return err
		})
	}
	if name, err := get(30090, s.m.Within(time.Second)); err == nil {
		t.Errorf("the policy lets in who is outside: %q answers", name)
	}
}

func (s *story) tools(t *testing.T) {
	if out := s.m.Run("kubectl", "exec", "deployment/client", "--", "cat", "/store/starts"); out != "started" {
		t.Errorf("the volume holds %q", out)
	}
	if s.quotas {
		if out, err := s.m.TrySh("kubectl exec deployment/client -- dd if=/dev/zero of=/store/large bs=1M count=24"); err == nil {
			t.Errorf("24 MiB are in a volume of 16: %s", out)
		}
	}
	if out := s.m.Sh("echo hello | kubectl exec -i deployment/client -- cat"); out != "hello" {
		t.Errorf("exec: %q", out)
	}
	if out := s.m.Run("kubectl", "logs", "deployment/web"); !strings.Contains(out, "8080") {
		t.Errorf("logs: %q", out)
	}
	hosts.Eventually(t, s.m.Within(answerIn)+90*time.Second, func() error { // measured every minute
		_, err := s.m.TrySh(`kubectl top nodes; kubectl top pods | grep ^web`)
		return err
	})
}

// memory looks whether the kernel has ended the container that took too much, and no other.
func (s *story) memory(t *testing.T) {
	s.eventually(t, `kubectl get pod glutton -o jsonpath='{.status.containerStatuses[?(@.name=="greedy")].state}' | grep terminated`)
	const greedy = `{.status.containerStatuses[?(@.name=="greedy")]`
	out := s.m.Run("kubectl", "get", "pod", "glutton", "-o", "jsonpath="+greedy+".state.terminated.reason} "+greedy+".state.terminated.exitCode}")
	if out != "OOMKilled 137" {
		s.facts["greedy container"] = out
	}
	// systemd may remove the container's scope before containerd has read there that the kernel ended it: github.com/containerd/containerd/pull/12714.
	if systemd := s.facts["cgroups"] == "cgroup2fs" && s.engine == ""; out != "OOMKilled 137" && !(systemd && out == "Error 137") {
		t.Errorf("the greedy container ended as %q\n%s", out, s.m.Sh("dmesg | grep -iE 'oom|killed process' | tail -n 5 || true"))
	}
	if out := s.m.Run("kubectl", "get", "pod", "glutton", "-o", `jsonpath={.status.containerStatuses[?(@.name=="modest")].state}`); !strings.Contains(out, "running") {
		t.Errorf("the modest container is %s", out)
	}
	if now := s.containers(); now != s.pods {
		t.Errorf("other containers ended: they were\n%s\nand are\n%s", s.pods, now)
	}
}

// cgroups looks where the containers are, and whether their limits are in force.
func (s *story) cgroups(t *testing.T) {
	out := s.m.Sh(`pid=$(crictl inspect -o go-template --template '{{.info.pid}}' $(crictl ps --name agnhost -q | head -n 1))
cat /proc/$pid/cgroup; echo; cat /proc/$pid/attr/apparmor/current 2>/dev/null || echo unconfined
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	cd /sys/fs/cgroup$(cut -d: -f3 /proc/$pid/cgroup); echo memory $(cat memory.max) cpu $(cat cpu.max)
else
	echo memory $(cat /sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/$pid/cgroup)/memory.limit_in_bytes) cpu $(cat /sys/fs/cgroup/cpu$(sed -n 's/^[0-9]*:cpu,cpuacct://p' /proc/$pid/cgroup)/cpu.cfs_quota_us) 100000
fi`)
	t.Log(out)
	want := []string{"memory 100663296", "cpu 70000 100000"}
	if s.facts["cgroups"] == "cgroup2fs" {
		want = append(want, "/kubepods.slice/", ".scope")
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("%q is not in\n%s", w, out)
		}
	}
	if enabled, _ := s.m.Try("cat", "/sys/module/apparmor/parameters/enabled"); enabled == "Y" && !strings.Contains(out, "(enforce)") {
		t.Errorf("no AppArmor profile is in force:\n%s", out)
	}
}

// restart restarts the service; pods do not notice.
func (s *story) restart(t *testing.T) {
	s.m.Run("systemctl", "restart", "coracle")
	s.ready(t)
	if now := s.containers(); now != s.pods {
		t.Errorf("pods were restarted: they were\n%s\nand are\n%s", s.pods, now)
	}
	s.connected(t)
}

// ready waits until coracle says that all is well.
func (s *story) ready(t *testing.T) {
	t.Helper()
	s.m.Run("coracle", "wait", "--quiet", "--timeout", s.m.Within(readyWithin).String())
}

func (s *story) reboot(t *testing.T) {
	down := s.m.Off(s.m.Within(readyWithin))
	up := s.m.Boot()
	began := time.Now()
	s.is(t)
	s.ready(t)
	s.facts["boot to Ready"] = (up + time.Since(began)).Round(time.Second).String()
	t.Logf("down after %s, up after %s, ready after %s more", down.Round(time.Second), up.Round(time.Second), time.Since(began).Round(time.Second))
	s.well(t, 2)
}

// well looks at everything after the pods were started again for the nth time.
func (s *story) well(t *testing.T, starts int) {
	t.Helper()
	s.running(t)
	s.connected(t)
	if out := s.m.Run("kubectl", "exec", "deployment/client", "--", "cat", "/store/starts"); strings.Count(out, "started") < starts {
		t.Errorf("the volume holds %q after %d starts", out, starts)
	}
	s.pods = s.containers()
}

// release prints the version that an executable has, such as v1.37.1+coracle.1.
func (s *story) release(executable string) string {
	return s.m.Sh(`"$1" version | awk 'NR == 1 { print $2 }'`, executable)
}

// served is the version of the service that runs.
func (s *story) served(t *testing.T) string {
	t.Helper()
	var status struct{ Version string }
	if err := json.Unmarshal([]byte(s.m.Run("coracle", "status", "--output", "json")), &status); err != nil {
		t.Fatal(err)
	}
	return status.Version
}

func (s *story) upgrade(t *testing.T) {
	before, next := s.release("coracle"), s.release(Next) // scripts/next makes it
	if served := s.served(t); before == next || served != before {
		t.Fatalf("before the upgrade to %q the executable is %q and the service that runs %q", next, before, served)
	}
	s.installs(t, Next)
	if after, served := s.release("coracle"), s.served(t); after != next || served != next {
		t.Errorf("after the upgrade from %q to %q the executable is %q and the service that runs %q", before, next, after, served)
	}
	s.facts["upgrade"] = before + " to " + next
	if now := s.containers(); now != s.pods {
		t.Errorf("pods were restarted: they were\n%s\nand are\n%s", s.pods, now)
	}
	s.connected(t)
}

// leftovers are differences that are allowed after an uninstallation, each with its reason.
var leftovers = []struct{ begins, why string }{
	{"+ module ", "the kernel keeps modules until it is booted again; other programs may use them by now"},
	{"- module ", "udev loads and the kernel removes modules at any time"},
	{"+ sysctl net/bridge/", "comes and goes with its module"},
	{"~ sysctl net/ipv4/ip_forward: 0 -> 1", "forwarding stays on: other programs may rely on it"},
	{"~ sysctl net/ipv6/conf/all/forwarding: 0 -> 1", "as before"},
	{"~ sysctl net/bridge/bridge-nf-call-iptables: 0 -> 1", "as before"},
	{"- process (udev-worker)", "udev starts and ends them at any time"},
	{"+ cgroup /sys/fs/cgroup/system.slice/var-lib-coracle.mount", "systemd mounts the data's own file system since the first reboot; the test has done that before"},
	{"+ cgroup /sys/fs/cgroup/system.slice/swap.swap", "as before, for the swap file"},
	{"~ /var/log/audit/audit.log", "auditd notes every login of the test"},
	{"+ process (udev-worker)", "udev starts and ends them at any time"},
	{"~ unit ldconfig.service: loaded active -> loaded inactive", "systemd runs it at the first boot of a new system only"},
	{"~ unit network-online.target: loaded inactive -> loaded active", "systemd has waited for it, because the service asked for that, until the next boot"},
}

func (s *story) uninstall(t *testing.T) {
	began := time.Now()
	t.Log(s.m.Run("coracle", "uninstall", "--yes"))
	s.facts["uninstall"] = time.Since(began).Round(time.Second).String()
	diff := slices.DeleteFunc(machines.Diff(s.before, s.m.Inventory()), func(line string) bool {
		return slices.ContainsFunc(leftovers, func(l struct{ begins, why string }) bool { return strings.HasPrefix(line, l.begins) })
	})
	if len(diff) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(diff, "\n"))
	}
}
