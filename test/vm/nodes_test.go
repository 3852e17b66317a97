package vm

import (
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// nodeSteps are what docs/extending/nodes.md and runtimes.md say, on a machine with cgroup v2, swap, and Debian's crun and CRIU.
func nodeSteps() []step {
	return []step{
		{"boot", (*story).boot, false},
		{"install.sh", (*story).installNode, false},
		{"pods", (*story).nodePods, false},
		{"crun", (*story).crun, false},
		{"classes of service", (*story).classes, false},
		{"more memory without a restart", (*story).resize, false},
		{"users of its own", (*story).users, false},
		{"too many processes", (*story).processes, false},
		{"too much memory ends all processes", (*story).group, false},
		{"checkpoint", (*story).checkpoint, false},
		{"no swap unless it is asked for", (*story).noSwap, false},
		{"swap", (*story).swap, false},
		{"too much on the disk", (*story).fullDisk, false},
		{"eviction for want of memory", (*story).lowMemory, false},
	}
}

// nodeConfig are the kubelet's settings from the beginning. The threshold is so high that the kubelet evicts before the kernel ends anything.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podPidsLimit: 64
evictionHard: {memory.available: 400Mi}
`

//go:embed testdata/nodes.yaml
var nodePods string

func (s *story) installNode(t *testing.T) {
	s.m.Write("/etc/coracle/kubelet.d/node.yaml", nodeConfig)
	s.install(t)
	s.facts["crun"] = s.m.Sh("crun --version | head -n 1")
	s.facts["CRIU"] = s.m.Sh("criu --version | head -n 1")
}

func (s *story) nodePods(*testing.T) {
	s.m.Sh(`coracle images import "$1"/busybox.tar`, Images)
	s.apply(nodePods)
	s.m.Run("kubectl", "wait", "--for=condition=Ready", "pod/guaranteed", "pod/burstable", "pod/best-effort", "pod/users", "pod/remembers", "--timeout="+s.m.Within(podsWithin).String())
}

// apply applies manifests.
func (s *story) apply(manifests string) {
	s.m.Write("/tmp/manifests.yaml", manifests)
	s.m.Sh("kubectl apply --validate=false -f - </tmp/manifests.yaml")
}

// pod prints a part of a pod.
func (s *story) pod(name, path string) string {
	return s.m.Run("kubectl", "get", "pod", name, "-o", "jsonpath={"+path+"}")
}

// scope is where the control group of a pod's container is.
const scope = `id=$(kubectl get pod "$1" -o jsonpath='{.status.containerStatuses[0].containerID}'); id=${id##*/}
cgroup=$(find /sys/fs/cgroup/kubepods.slice -name "cri-containerd-$id.scope" | grep .); shift
`

// files are files of the control group of a pod's container, each with its name, and those of its parent with ../ before it.
func (s *story) files(pod string, names ...string) string {
	return s.m.Sh(scope+`cd "$cgroup"; for f; do echo "$f: $(cat "$f")"; done`, append([]string{pod}, names...)...)
}

// are compares a container's control group with what it should be.
func (s *story) are(t *testing.T, pod string, want ...string) {
	t.Helper()
	names := make([]string, len(want))
	for i, w := range want {
		names[i], _, _ = strings.Cut(w, ":")
	}
	if got := s.files(pod, names...); got != strings.Join(want, "\n") {
		t.Errorf("%s has\n%s\ninstead of\n%s", pod, got, strings.Join(want, "\n"))
	}
}

// crun runs a pod with the RuntimeClass that coracle has made of Debian's crun. A container's state is in a directory of its runtime's own.
func (s *story) crun(t *testing.T) {
	s.eventually(t, "kubectl get runtimeclass crun")
	s.apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crun"}, "spec": {"runtimeClassName": "crun", "terminationGracePeriodSeconds": 0, "containers": [{"name": "main",
"image": "coracle.test/busybox:1", "command": ["sh", "-c", "echo hello; exec sleep infinity"], "resources": {"limits": {"memory": "24Mi"}}}]}}`)
	s.m.Run("kubectl", "wait", "--for=condition=Ready", "pod/crun", "--timeout="+s.m.Within(podsWithin).String())
	const list = "crun --root /run/coracle/runc/crun/k8s.io list --quiet"
	all := s.m.Sh(list)
	id := func(pod string) string { return s.m.Sh(scope+`echo "$id"`, pod) }
	if mine, other := id("crun"), id("best-effort"); !strings.Contains(all, mine) || strings.Contains(all, other) {
		t.Errorf("crun has the containers\n%s\nwith RuntimeClass crun is %s, without %s", all, mine, other)
	}
	s.are(t, "crun", "memory.max: 25165824")
	if out := s.m.Sh("kubectl logs crun; kubectl exec crun -- echo again"); out != "hello\nagain" {
		t.Errorf("the pod says %q", out)
	}
	s.m.Sh("kubectl delete pod crun")
	s.eventually(t, `[ -z "$(`+list+`)" ]`)
}

func (s *story) classes(t *testing.T) {
	for pod, want := range map[string]struct{ class, slice, score string }{
		"guaranteed":  {"Guaranteed", "kubepods.slice/kubepods-pod", "-997"},
		"burstable":   {"Burstable", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod", "9"},
		"best-effort": {"BestEffort", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod", "1000"},
	} {
		class, at, score := s.pod(pod, ".status.qosClass"), s.m.Sh(scope+`echo "${cgroup#/sys/fs/cgroup/}"`, pod), s.m.Sh("kubectl exec $1 -- cat /proc/1/oom_score_adj", pod)
		if class != want.class || !strings.HasPrefix(at, want.slice) || !strings.HasPrefix(score, want.score) {
			t.Errorf("%s is %s, in %s, with %s; want %+v", pod, class, at, score, want)
		}
	}
	s.are(t, "guaranteed", "memory.max: 33554432", "cpu.max: 10000 100000", "memory.oom.group: 1", "../memory.max: 33554432", "../cpu.max: 10000 100000")
	s.are(t, "burstable", "memory.max: 50331648", "cpu.max: max 100000")
	s.are(t, "best-effort", "memory.max: max", "cpu.max: max 100000", "../../cpu.weight: 1")
}

// restarts says how often a pod's container was started again, and which it is.
func (s *story) restarts(pod string) string {
	return s.pod(pod, ".status.containerStatuses[0]['restartCount', 'containerID']")
}

func (s *story) resize(t *testing.T) {
	before := s.restarts("guaranteed")
	s.m.Run("kubectl", "patch", "pod", "guaranteed", "--subresource=resize", "-p",
		`{"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": {"cpu": "200m", "memory": "64Mi"}}}]}}`)
	s.eventually(t, `kubectl get pod guaranteed -o jsonpath='{.status.containerStatuses[0].resources.limits}' | grep '200m.*64Mi'`)
	s.are(t, "guaranteed", "memory.max: 67108864", "cpu.max: 20000 100000", "../memory.max: 67108864", "../cpu.max: 20000 100000")
	if now := s.restarts("guaranteed"); now != before || !strings.HasPrefix(now, "0 ") {
		t.Errorf("the container was %s and is %s", before, now)
	}
}

// users looks at the pod's user from both sides.
func (s *story) users(t *testing.T) {
	inside := s.m.Sh("kubectl exec users -- sh -c 'id -u; cat /proc/self/uid_map'")
	outside := s.m.Sh(scope+`stat -c %u /proc/$(head -n 1 "$cgroup/cgroup.procs")`, "users")
	user, err := strconv.Atoi(outside)
	if want := []string{"0", "0", outside, "65536"}; err != nil || user < 65536 || strings.Join(strings.Fields(inside), " ") != strings.Join(want, " ") {
		t.Errorf("inside it says %s, and outside the user is %s", inside, outside)
	}
}

func (s *story) processes(t *testing.T) {
	s.are(t, "best-effort", "../pids.max: 64")
	_, err := s.m.TrySh(`kubectl exec best-effort -- sh -c 'for i in $(seq 100); do sleep 60 >/dev/null 2>&1 & done'`)
	if err == nil || !strings.Contains(err.Error(), "can't fork: Resource temporarily unavailable") {
		t.Errorf("100 processes: %v", err)
	}
}

// group looks at a container of which one process took too much memory, and another would still run had the kernel ended only that.
func (s *story) group(t *testing.T) {
	s.eventually(t, `kubectl get pod hungry -o jsonpath='{.status.containerStatuses[0].state.terminated.exitCode}' | grep 137`)
	s.facts["hungry container"] = s.pod("hungry", ".status.containerStatuses[0].state.terminated.reason") // see the notes on systemd
	s.m.Sh(`dmesg | grep 'going to be killed due to memory.oom.group'; dmesg | grep 'Memory cgroup out of memory: .*(sh)'`)
}

// checkpoint looks for what the container has in its memory and on its disk. It goes on.
func (s *story) checkpoint(t *testing.T) {
	before, word := s.restarts("remembers"), s.m.Sh("kubectl exec remembers -- cat /word")
	out, err := s.m.TrySh(`ip=$(kubectl get node -o jsonpath='{.items[0].status.addresses[0].address}')
kubectl --server=https://$ip:10250 create --raw /checkpoint/default/remembers/main -f /dev/null`)
	if err != nil {
		log, _ := s.m.TrySh(`find /run/coracle /var/lib/coracle -name '*dump.log' | xargs tail -n 30`)
		t.Fatalf("%v\n%s", err, log)
	}
	_, file, _ := strings.Cut(out, `["`)
	file, _, _ = strings.Cut(file, `"]`)
	s.facts["checkpoint"] = s.m.Sh(`cd /tmp; tar -xf "$1"; grep -qaF "$2" checkpoint/pages-*.img; tar -xOf rootfs-diff.tar --wildcards '*word' | grep -qxF "$2"; stat -c '%s bytes, mode %a' "$1"`, file, word)
	n := s.m.Sh("kubectl logs remembers --tail=1 | cut -d ' ' -f 2")
	s.eventually(t, `[ $(kubectl logs remembers --tail=1 | cut -d ' ' -f 2) -gt `+n+` ]; kubectl logs remembers --tail=1 | grep `+word)
	if now := s.restarts("remembers"); now != before {
		t.Errorf("the container was %s and is %s", before, now)
	}
}

// large is a pod that wants more memory than it may have, 64 of 48 MiB, and keeps it: nobody reads what dd has read. It reads no zeros: with
// them and swap, Linux 6.12 had only 26 of the 64 MiB in memory and in swap together.
const large = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "main",
"image": "coracle.test/busybox:1", "command": ["sh", "-c", "dd if=/dev/urandom bs=64M count=1 | sleep infinity"], "resources": {"requests": {"memory": "40Mi"}, "limits": {"memory": "48Mi"}}}]}}`

func (s *story) noSwap(t *testing.T) {
	s.are(t, "burstable", "memory.swap.max: 0")
	s.apply(large)
	s.eventually(t, `kubectl get pod large -o jsonpath='{.status.containerStatuses[0].state.terminated.exitCode}' | grep 137`)
	s.m.Sh("kubectl delete pod large")
}

// swap lets Burstable pods use swap, in the proportion of the memory that they ask for to the machine's. The pod that was ended in the step before now lives.
func (s *story) swap(t *testing.T) {
	dropIn, err := os.ReadFile("../extensions/nodes/swap.yaml") // which the page shows
	if err != nil {
		t.Fatal(err)
	}
	s.m.Write("/etc/coracle/kubelet.d/swap.yaml", string(dropIn))
	s.m.Run("systemctl", "restart", "coracle")
	s.ready(t)
	s.m.Sh("kubectl get pods guaranteed burstable best-effort -o json | kubectl replace --force --validate=false -f -")
	s.apply(large)
	var memory, swap int64
	if _, err := fmt.Sscan(s.m.Sh(`awk '/^(MemTotal|SwapTotal):/ { printf "%d ", $2 * 1024 }' /proc/meminfo`), &memory, &swap); err != nil {
		t.Fatal(err)
	}
	s.m.Run("kubectl", "wait", "--for=condition=Ready", "pod/large", "pod/guaranteed", "pod/burstable", "pod/best-effort", "--timeout="+s.m.Within(podsWithin).String())
	of := int64(float64(40<<20)/float64(memory)*float64(swap)) / 4096 * 4096
	s.are(t, "large", fmt.Sprint("memory.swap.max: ", of), "memory.max: 50331648")
	s.are(t, "guaranteed", "memory.swap.max: 0")
	s.are(t, "best-effort", "memory.swap.max: 0")
	const swapped = `for p in $(cat "$cgroup/cgroup.procs"); do cat /proc/$p/status; done | awk '/^VmRSS/ { n += $2 } /^VmSwap/ { n += $2; s += $2 } END { print s " of " n " kB are swapped"; exit n < 65536 || s < 16384 }'`
	hosts.Eventually(t, s.m.Within(answerIn), func() error {
		out, err := s.m.TrySh(scope+swapped, "large")
		s.facts["swap"] = out
		return err
	})
	s.m.Sh(scope+`[ $(cat "$cgroup/memory.swap.current") -gt 16000000 ]; awk 'NR > 1 && $4 >= 16384 { n++ } END { exit !n }' /proc/swaps`, "large")
	if capacity := s.m.Run("kubectl", "get", "node", "-o", "jsonpath={.items[0].status.nodeInfo.swap.capacity}"); capacity != fmt.Sprint(swap) {
		t.Errorf("the node says that it has %s bytes of swap, and has %d", capacity, swap)
	}
	s.m.Sh("kubectl delete pod large")
}

// evicted waits until the kubelet has evicted a pod, and says why.
func (s *story) evicted(t *testing.T, pod string) string {
	t.Helper()
	hosts.Eventually(t, s.m.Within(answerIn)+2*time.Minute, func() error { // the kubelet looks every 10 s at figures that are as old
		_, err := s.m.TrySh(`kubectl get pod "$1" -o jsonpath='{.status.phase} {.status.reason}' | grep -x 'Failed Evicted'`, pod)
		return err
	})
	return s.pod(pod, ".status.message")
}

func (s *story) fullDisk(t *testing.T) {
	if why := s.evicted(t, "full"); !strings.Contains(why, "ephemeral") {
		t.Errorf("the pod was evicted because of %s", why)
	}
}

// lowMemory takes all memory but 200 MiB, with a pod that asks for none. The others stay.
func (s *story) lowMemory(t *testing.T) {
	before := s.restarts("burstable")
	size := s.m.Sh(`awk '/^MemAvailable:/ { print int($2 / 1024) - 200 }' /proc/meminfo`)
	s.apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy"}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "main",
"image": "coracle.test/busybox:1", "command": ["sh", "-c", "dd if=/dev/zero bs=` + size + `M count=1 | sleep infinity"]}]}}`)
	why := s.evicted(t, "greedy")
	s.facts["eviction"] = why
	if !strings.Contains(why, "low on resource: memory") {
		t.Errorf("the pod was evicted because of %s", why)
	}
	if now := s.restarts("burstable"); now != before || s.pod("burstable", ".status.phase") != "Running" {
		t.Errorf("the other pod was %s and is %s", before, now)
	}
	s.eventually(t, `kubectl get node -o jsonpath='{.items[0].status.conditions[?(@.type=="MemoryPressure")].status} {.items[0].spec.taints}' | grep 'True.*memory-pressure'`)
}
