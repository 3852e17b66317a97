package reset

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// names of 36 letters, as UUIDs are: shorter ones prove nothing.
const (
	ourUID     = "11111111-2222-3333-4444-555555555555"
	foreignUID = "99999999-2222-3333-4444-555555555555"
)

// host is a machine's files below a temporary directory, with what coracle and others made on it.
func host(t *testing.T) (*machine, string) {
	t.Helper()
	root := t.TempDir()
	at := func(path string) string { return filepath.Join(root, path) }
	dirs := paths.Dirs{Data: at("/var/lib/coracle"), Run: at("/run/coracle"), Config: at("/etc/coracle"), Kubelet: at("/var/lib/kubelet")}
	for _, file := range []string{
		dirs.Containerd() + "/io.containerd.metadata.v1.bolt/meta.db",
		dirs.Kubelet + "/pods/" + ourUID + "/volumes/x",
		dirs.Kubelet + "/notes-of-a-person",
		dirs.Run + "/state/front.json",
		at("/etc/coracle/kubeconfig.yaml"), at("/etc/coracle/config.yaml"),
		at("/etc/coracle/.kubeconfig.yaml.123"), at("/etc/coracle/.kubeconfig.yaml.mine"), at("/etc/cni/net.d/.10-coracle.conflist.45"),
		at("/etc/cni/net.d/10-coracle.conflist"), at("/etc/cni/net.d/20-foreign.conflist"),
		at("/var/log/pods/default_web_" + ourUID + "/main/0.log"), at("/var/log/pods/default_web_" + foreignUID + "/main/0.log"),
		at("/opt/cni/bin/ours"), at("/opt/cni/bin/foreign"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range []string{ourUID, foreignUID} {
		link := at("/var/log/containers/web-" + uid + ".log")
		os.MkdirAll(filepath.Dir(link), 0o755)
		if err := os.Symlink("/var/log/pods/default_web_"+uid+"/main/0.log", link); err != nil {
			t.Fatal(err)
		}
	}
	return &machine{dirs: dirs, root: root, proc: "/proc", noted: []ledger.Entry{
		{Kind: ledger.File, Name: "/opt/cni/bin/ours"}, {Kind: ledger.Dir, Name: "/opt/cni/bin"},
		{Kind: ledger.Dir, Name: dirs.Data}, {Kind: ledger.Dir, Name: dirs.Run},
	}}, root
}

// apply removes all that a stage finds.
func apply(t *testing.T, m *machine, find func(context.Context, *machine) ([]Item, error)) {
	t.Helper()
	items, err := find(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if err := item.remove(t.Context()); err != nil {
			t.Errorf("%s: %v", item, err)
		}
	}
}

func tree(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFilesOfOthersStay(t *testing.T) {
	m, root := host(t)
	apply(t, m, findFiles)
	apply(t, m, findRun)
	apply(t, m, findDirs)
	want := []string{
		"/etc/cni/net.d/20-foreign.conflist",
		"/etc/coracle/.kubeconfig.yaml.mine",
		"/etc/coracle/config.yaml",
		"/opt/cni/bin/foreign",
		"/var/lib/kubelet/notes-of-a-person",
		"/var/log/containers/web-" + foreignUID + ".log",
		"/var/log/pods/default_web_" + foreignUID + "/main/0.log",
	}
	if got := tree(t, root); !slices.Equal(got, want) {
		t.Errorf("left:\n%s", strings.Join(got, "\n"))
	}
	for _, gone := range []string{m.dirs.Data, m.dirs.Run} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", gone)
		}
	}
}

// TestKeepData removes what a reboot would, and forgets it.
func TestKeepData(t *testing.T) {
	m, root := host(t)
	made := ledger.Open(m.dirs)
	if err := made.Note(ledger.Entry{Kind: ledger.Dir, Name: m.dirs.Run}, ledger.Entry{Kind: ledger.Link, Name: "coracle-test0"}); err != nil {
		t.Fatal(err)
	}
	before := slices.DeleteFunc(tree(t, root), func(path string) bool { return strings.HasPrefix(path, "/run/coracle/") })
	r := Reset{Dirs: m.dirs, Root: root, KeepData: true}
	plan, err := r.Plan(t.Context())
	if err != nil || slices.ContainsFunc(plan, func(i Item) bool { return i.Kind == "file" }) {
		t.Errorf("plan %v, %v", plan, err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, root); !slices.Equal(got, before) {
		t.Errorf("left %q, want %q", got, before)
	}
	if _, err := os.Stat(m.dirs.Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", m.dirs.Run)
	}
	entries, err := made.Entries()
	if err != nil || len(entries) != 1 || entries[0].Kind != ledger.Dir {
		t.Errorf("the ledger has %v, %v", entries, err)
	}
}

// TestPlanIsWhatIsDone compares what a plan says of files and directories with what is gone after it.
func TestPlanIsWhatIsDone(t *testing.T) {
	m, root := host(t)
	m.noted = append(m.noted, ledger.Entry{Kind: ledger.Dir, Name: "/etc/made"}, ledger.Entry{Kind: ledger.File, Name: "/etc/made/file"})
	os.MkdirAll(filepath.Join(root, "/etc/made"), 0o755)
	os.WriteFile(filepath.Join(root, "/etc/made/file"), nil, 0o600)
	var planned []string
	m.planned = map[string]bool{}
	for _, find := range []func(context.Context, *machine) ([]Item, error){findFiles, findDirs} {
		items, err := find(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			planned = append(planned, item.Name)
			m.planned[item.Name] = true
		}
	}
	if !slices.Contains(planned, filepath.Join(root, "/etc/made")) || slices.Contains(planned, filepath.Join(root, "/opt/cni/bin")) {
		t.Errorf("planned %q", planned)
	}
	apply(t, m, findFiles)
	apply(t, m, findRun)
	apply(t, m, findDirs)
	for _, path := range planned {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was planned and is still there", path)
		}
	}
}

func TestNothingWithoutCoracle(t *testing.T) {
	root := t.TempDir()
	r := Reset{Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"}, Root: root}
	os.MkdirAll(root+"/etc/cni/net.d", 0o755)
	os.WriteFile(root+"/etc/cni/net.d/10-coracle.conflist", nil, 0o600) // of that name, but nobody was here
	if plan, err := r.Plan(t.Context()); err != nil || len(plan) != 0 {
		t.Errorf("%v, %v", plan, err)
	}
	r.Cache = root + "/cache"
	os.MkdirAll(r.Cache, 0o755)
	if plan, err := r.Plan(t.Context()); err != nil || len(plan) != 1 || plan[0].Name != r.Cache {
		t.Errorf("with a cache: %v, %v", plan, err)
	}
	if _, err := os.Stat(r.Dirs.Data); err == nil {
		t.Error("looking made the data directory")
	}
}

// TestVolumesAreSaid: the data of pods is an item of its own, before the directory that it is in, and stays with
// --keep-data.
func TestVolumesAreSaid(t *testing.T) {
	m, _ := host(t)
	if items, err := findVolumes(t.Context(), m); err != nil || len(items) != 0 {
		t.Errorf("without volumes: %v, %v", items, err)
	}
	folder := filepath.Join(m.dirs.LocalVolumes(), "pvc-"+ourUID+"_default_data")
	os.MkdirAll(folder, 0o755)
	os.WriteFile(filepath.Join(folder, "file"), make([]byte, 2<<20), 0o600)
	r := Reset{Dirs: m.dirs, Root: m.root}
	plan, _ := r.Plan(t.Context())
	volumes := slices.IndexFunc(plan, func(i Item) bool { return i.Kind == Volumes })
	data := slices.IndexFunc(plan, func(i Item) bool { return i.Kind == "directory" && i.Name == m.dirs.LocalVolumes() })
	if volumes < 0 || volumes > data || !strings.Contains(plan[volumes].Detail, "1 volume with 2.0 MiB") {
		t.Errorf("the plan is %v", plan)
	}
	r.KeepData = true
	plan, _ = r.Plan(t.Context())
	if slices.ContainsFunc(plan, func(i Item) bool { return i.Kind == Volumes }) {
		t.Errorf("with --keep-data: %v", plan)
	}
	apply(t, m, findVolumes)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the volume is still there: %v", err)
	}
}

func TestDirOfAUserKeepsHisFiles(t *testing.T) {
	m, _ := host(t)
	m.noted = nil // the data directory was there before
	os.WriteFile(filepath.Join(m.dirs.Data, "diary"), nil, 0o600)
	apply(t, m, findRun)
	apply(t, m, findDirs)
	if got := tree(t, m.dirs.Data); !slices.Equal(got, []string{"/diary"}) {
		t.Errorf("left %q", got)
	}
}

// TestKubeletOfOthersStays: the kubelet's directory is that of other distributions too, and coracle's only if a node of it has run there.
func TestKubeletOfOthersStays(t *testing.T) {
	m, _ := host(t)
	containerd := m.dirs.Containerd()
	for name, tt := range map[string]struct {
		ran   bool // containerd's directory is there
		noted []ledger.Entry
		want  bool
	}{
		"a start that checks refuse":         {},
		"another directory":                  {true, []ledger.Entry{{Kind: ledger.Used, Name: "/srv/kubelet"}}, false},
		"shared by another's mount":          {false, []ledger.Entry{{Kind: ledger.Propagation, Name: m.dirs.Kubelet}}, false},
		"a node":                             {false, []ledger.Entry{{Kind: ledger.Used, Name: m.dirs.Kubelet}}, true},
		"a node of a former release":         {true, nil, true},
		"a former release made it":           {false, []ledger.Entry{{Kind: ledger.Dir, Name: m.dirs.Kubelet}}, true},
		"a former release had it for itself": {false, []ledger.Entry{{Kind: ledger.Contents, Name: m.dirs.Kubelet}}, true},
	} {
		os.RemoveAll(m.dirs.Data)
		if tt.ran {
			os.MkdirAll(containerd, 0o755)
		}
		if err := ledger.Open(m.dirs).Note(tt.noted...); err != nil {
			t.Fatal(err)
		}
		if looked, errs := (Reset{Dirs: m.dirs}).look(); len(errs) > 0 || (looked.dirs.Kubelet != "") != tt.want {
			t.Errorf("%s: used is %t, %v", name, looked.dirs.Kubelet != "", errs)
		}
	}
	m.noted = []ledger.Entry{{Kind: ledger.Mount, Name: m.dirs.Kubelet}, {Kind: ledger.Used, Name: m.dirs.Kubelet}}
	if items := m.dirItems(m.ownDirs()[1]); len(items) != 0 {
		t.Errorf("what an ephemeral server's memory covered is removed: %v", items)
	}
}

// TestClaimedDirIsEmptied: what belongs to the file system, if one is mounted there, stays.
func TestClaimedDirIsEmptied(t *testing.T) {
	m, _ := host(t)
	m.noted = []ledger.Entry{{Kind: ledger.Contents, Name: m.dirs.Kubelet}}
	os.Mkdir(filepath.Join(m.dirs.Kubelet, "lost+found"), 0o700)
	apply(t, m, findRun)
	apply(t, m, findDirs)
	left, _ := os.ReadDir(m.dirs.Kubelet)
	if !isEmpty(m.dirs.Kubelet) || len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestLedgerStaysAfterAFailure(t *testing.T) {
	m, _ := host(t)
	m.failed = true
	items, err := findDirs(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		err := item.remove(t.Context())
		if (item.Name == m.dirs.Data) != (err != nil) {
			t.Errorf("%s: %v", item, err)
		}
	}
}

func TestDamagedLedgerIsSaidAndOvercome(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir(), Run: t.TempDir()}
	os.WriteFile(dirs.Ledger(), []byte("{"), 0o600)
	m, errs := Reset{Dirs: dirs}.look()
	if len(errs) != 1 {
		t.Errorf("%v", errs)
	}
	for _, e := range []ledger.Entry{{Kind: ledger.Link, Name: "cni0"}, {Kind: ledger.Link, Name: "coracle0"}, {Kind: ledger.Mount, Name: "/run/netns"},
		{Kind: ledger.NFTTable, Name: "inet coracle-policy"}, {Kind: ledger.NFTTable, Name: "bridge coracle-policy"},
		{Kind: ledger.NFTRule, Name: "ip filter FORWARD"}, {Kind: ledger.Cgroup, Name: "/kubepods.slice"}} {
		if !m.made(e.Kind, e.Name) {
			t.Errorf("without a ledger, %s %s is not removed", e.Kind, e.Name)
		}
	}
	for _, e := range m.noted {
		if e.Kind == ledger.Dir || e.Name == "/dev/kmsg" || e.Name == "/etc/machine-id" {
			t.Errorf("without a ledger, %s %s would be removed, which may be another program's", e.Kind, e.Name)
		}
	}
}

func TestMissingLedgerIsSaidAndOvercome(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir(), Run: t.TempDir()}
	if m, errs := (Reset{Dirs: dirs}).look(); len(errs) != 0 || len(m.noted) != 0 { // nobody was here
		t.Errorf("%v, %v", errs, m.noted)
	}
	os.WriteFile(dirs.Resolved(), []byte("{}"), 0o600)
	m, errs := Reset{Dirs: dirs}.look()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), dirs.Ledger()+" is missing") || !m.made(ledger.Link, "cni0") {
		t.Errorf("%v, %v", errs, m.noted)
	}
}

func TestEntriesOfAnEarlierBootAreNotOurs(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	os.WriteFile(dirs.Ledger(), []byte(`[{"kind":"link","name":"cni0","boot":"earlier"},{"kind":"file","name":"/x"}]`), 0o600)
	m, errs := Reset{Dirs: dirs}.look()
	if len(errs) != 0 || m.made(ledger.Link, "cni0") || !m.made(ledger.File, "/x") {
		t.Errorf("%v, %v", errs, m.noted)
	}
}

func TestTopCgroup(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/burstable/pod1/2":                     "/kubepods",
		"/edge/kubepods/pod1/2":                          "/edge/kubepods",
		"kubepods-burstable-pod1.slice:cri-containerd:2": "/kubepods.slice",
		"/system.slice/docker-1.scope":                   "",
		"":                                               "",
	} {
		if got := topCgroup(path); got != want {
			t.Errorf("%s is in %q, want %q", path, got, want)
		}
	}
}

func TestServices(t *testing.T) {
	for text, want := range map[string][]string{
		"0::/system.slice/coracle.service\n": {"coracle.service"},
		"12:cpu:/system.slice/coracle.service\n1:name=systemd:/system.slice/coracle.service\n0::/\n": {"coracle.service"},
		"0::/user.slice/user-0.slice/session-3.scope\n":                                              nil,
		"0::/\n": nil,
	} {
		if got := services(text); !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}

// TestStopByService stops a front that is a service through its manager, for which a script stands in.
func TestStopByService(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >> " + dir + "/calls\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := systemctl(t.Context(), "stop", "coracle.service"); err != nil {
		t.Fatal(err)
	}
	if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); string(calls) != "stop coracle.service\n" {
		t.Errorf("called %q", calls)
	}
}

func TestContainers(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	dir := filepath.Join(dirs.ContainerdState(), "io.containerd.runtime.v2.task", "k8s.io", "abc")
	os.MkdirAll(dir, 0o755)
	os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"annotations":{"io.kubernetes.cri.sandbox-name":"web","io.kubernetes.cri.sandbox-namespace":"default"},
		"linux":{"cgroupsPath":"/kubepods/pod1/abc","namespaces":[{"type":"network","path":"/var/run/netns/cni-`+ourUID+`"}]}}`), 0o600)
	e := gather(dirs)
	want := container{id: "abc", cgroup: "/kubepods", netns: "cni-" + ourUID, pod: "default/web"}
	if len(e.containers) != 1 || e.containers[0] != want {
		t.Fatalf("%+v", e.containers)
	}
	if !e.mentions("cni-"+ourUID) || e.mentions("cni-"+foreignUID) || e.mentions("abc") {
		t.Error("mixes up what is ours and what is not")
	}
}

// TestProcesses runs a stand-in for a shim with a child, and one of somebody else's.
func TestProcesses(t *testing.T) {
	m := &machine{dirs: paths.Dirs{Data: t.TempDir(), Run: t.TempDir()}, proc: "/proc"}
	shim := filepath.Join(t.TempDir(), "containerd-shim-runc-v2")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	if err := os.Symlink(sh, shim); err != nil {
		t.Fatal(err)
	}
	start := func(socket string) *exec.Cmd {
		cmd := exec.Command(shim, "-c", "sleep 60 & wait", "sh", "-id", "sandbox", "-address", socket)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL); _ = cmd.Wait() })
		for range 1000 { // a moment after the start it shows no command line yet
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); err == nil && len(line) > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return cmd
	}
	ours, foreign := start(m.dirs.ContainerdSocket()), start("/run/containerd/containerd.sock")
	items, err := findProcesses(t.Context(), m)
	if err != nil || len(items) != 1 || items[0].Kind != "pod" {
		t.Fatalf("%v, %v", items, err)
	}
	if err := items[0].remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ours.Wait(); err == nil {
		t.Error("the shim ended by itself")
	}
	if err := unix.Kill(foreign.Process.Pid, 0); err != nil {
		t.Errorf("somebody else's shim: %v", err)
	}
}

func TestLockHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if pid := lockHolder("/proc", path); pid != 0 {
		t.Errorf("held by %d before anybody took it", pid)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if pid := lockHolder("/proc", path); pid != os.Getpid() {
		t.Errorf("held by %d, want %d", pid, os.Getpid())
	}
}

// TestNetwork removes our links and tables in a network namespace of its own and leaves others.
func TestNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	bridge := func(name string) netlink.Link {
		l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	cni, _ := bridge("cni0"), bridge("docker0")
	for i, master := range []netlink.Link{cni, nil} {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("veth%d", i)}, PeerName: fmt.Sprintf("peer%d", i)}
		if master != nil {
			l.MasterIndex = master.Attrs().Index
		}
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-proxy", "foreign"} {
		conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	m := &machine{proc: "/proc", noted: []ledger.Entry{{Kind: ledger.Link, Name: "cni0"}, {Kind: ledger.Link, Name: "flannel.1"},
		{Kind: ledger.NFTTable, Name: "ip kube-proxy"}, {Kind: ledger.NFTTable, Name: "ip6 kube-proxy"},
		{Kind: ledger.NFTRule, Name: "ip foreign forward"}, {Kind: ledger.NFTRule, Name: "ip gone forward"}}}
	admitted := admit(t, conn)
	apply(t, m, findRules)
	if rules, err := conn.GetRules(admitted.Table, admitted); err != nil || len(rules) != 1 || len(rules[0].UserData) > 0 {
		t.Errorf("rules %v are left, %v; want the one of others", rules, err)
	}
	apply(t, m, findLinks)
	apply(t, m, findTables)
	links, _ := netlink.LinkList()
	var left []string
	for _, l := range links {
		if l.Type() == "bridge" || l.Type() == "veth" {
			left = append(left, l.Attrs().Name)
		}
	}
	slices.Sort(left)
	if want := []string{"docker0", "peer1", "veth1"}; !slices.Equal(left, want) {
		t.Errorf("links %q are left, want %q", left, want)
	}
	foreign, errForeign := nft.Exists("ip foreign")
	ours, errOurs := nft.Exists("ip kube-proxy")
	if !foreign || ours || errForeign != nil || errOurs != nil {
		t.Error("removed a table of somebody else's, or left ours")
	}
}

// admit makes a chain of others' with a rule of theirs, and has it opened for pods.
func admit(t *testing.T, conn *nftables.Conn) *nftables.Chain {
	t.Helper()
	policy := nftables.ChainPolicyDrop
	chain := conn.AddChain(&nftables.Chain{Name: "forward", Table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "foreign"},
		Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy})
	conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	gate := &nft.Gate{Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Comment: ledger.RuleComment,
		Note: func(string) error { return nil }, Opened: func(string) {}}
	if err := gate.Open(); err != nil {
		t.Fatal(err)
	}
	if rules, err := conn.GetRules(chain.Table, chain); err != nil || len(rules) != 3 {
		t.Fatalf("rules %v, %v; want 3", rules, err)
	}
	return chain
}

// TestMountsInside keeps what somebody mounted inside the data directory.
func TestMountsInside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m, _ := host(t)
	mountAt := func(dir string) {
		os.MkdirAll(dir, 0o755)
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	}
	foreign, ours := filepath.Join(m.dirs.Data, "images"), filepath.Join(m.dirs.Run, "containerd", "state", "rootfs")
	mountAt(foreign)
	mountAt(ours)
	apply(t, m, findMounts)
	apply(t, m, findRun)
	apply(t, m, findDirs)
	if got := tree(t, m.dirs.Data); !slices.Equal(got, []string{"/images/file"}) {
		t.Errorf("left in the data directory: %q", got)
	}
	if _, err := os.Stat(m.dirs.Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", m.dirs.Run)
	}
}

// TestUnfinishedNetNS removes a pod's network namespace that is in no record if nothing was set up in it.
func TestUnfinishedNetNS(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m, _ := host(t)
	dir := m.host(footprint.NetNSDir)
	for name, script := range map[string]string{"cni-" + ourUID: "true", "cni-" + foreignUID: "ip link set lo up", "cni-by-hand": "true"} {
		file := filepath.Join(dir, name)
		os.MkdirAll(dir, 0o755)
		os.WriteFile(file, nil, 0o600)
		made := exec.Command("unshare", "--net="+file, "sh", "-c", script)
		if out, err := made.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	}
	apply(t, m, findNetNS)
	if got := tree(t, dir); !slices.Equal(got, []string{"/cni-" + foreignUID, "/cni-by-hand"}) {
		t.Errorf("left: %q", got)
	}
}

// TestWithin: a route belongs to the pod network if its destination is the network or a part of it.
func TestWithin(t *testing.T) {
	network := func(cidr string) *net.IPNet {
		_, n, err := net.ParseCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ours := []*net.IPNet{network("10.42.0.0/16"), network("fd42::/48")}
	for cidr, want := range map[string]bool{
		"10.42.0.0/16": true, "10.42.7.0/24": true, "10.42.7.1/32": true, "10.0.0.0/8": false, "10.43.0.0/24": false, "0.0.0.0/0": false,
		"fd42::/48": true, "fd42:0:0:7::/64": true, "fd42::/32": false, "::/0": false,
	} {
		if got := withinAny(ours, network(cidr)); got != want {
			t.Errorf("%s: %t", cidr, got)
		}
	}
}

// TestSettings: a sysctl is given back only while it has coracle's value, however the kernel separates its words. Forwarding stays on.
func TestSettings(t *testing.T) {
	m := &machine{proc: t.TempDir()}
	for name, value := range map[string]string{"vm/a": "1\n", "vm/b": "3\n", "net/netfilter/c": "1\t2\n", "net/ipv4/ip_forward": "1\n",
		"net/ipv6/conf/all/forwarding": "1\n", "net/ipv6/conf/eth0.1/accept_ra": "2\n", "net/bridge/bridge-nf-call-iptables": "1\n"} {
		file := filepath.Join(m.proc, "sys", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range [][3]string{{"vm.a", "0", "1"}, {"vm.b", "0", "1"}, {"net.netfilter.c", "0 0", "1 2"}, {"vm.gone", "0", "1"}, {"net.ipv4.ip_forward", "0", "1"},
		{"net.ipv6.conf.all.forwarding", "0", "1"}, {"net/ipv6/conf/eth0.1/accept_ra", "1", "2"}, {"net.bridge.bridge-nf-call-iptables", "0", "1"}} {
		m.noted = append(m.noted, ledger.Entry{Kind: ledger.Sysctl, Name: e[0], Old: e[1], New: e[2]})
	}
	os.WriteFile(filepath.Join(m.proc, "self"), nil, 0o644) // no mount table
	items, err := findSettings(t.Context(), m)
	if err != nil || len(items) != 2 || items[0].Name != "vm.a" || items[1].Name != "net.netfilter.c" {
		t.Fatalf("%v, %v", items, err)
	}
	for i, want := range []string{"0", "0 0"} {
		if err := items[i].remove(t.Context()); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(filepath.Join(m.proc, "sys", strings.ReplaceAll(items[i].Name, ".", "/"))); string(got) != want {
			t.Errorf("%s is %q", items[i].Name, got)
		}
	}
}
