package localcluster

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestCheck(t *testing.T) {
	for want, p := range map[string]Plan{
		"":                      {Name: "a-1", Servers: 1, Nodes: 3},
		"lower-case":            {Name: "A", Servers: 1, Nodes: 1},
		"begin with a letter":   {Name: "1a", Servers: 1, Nodes: 1},
		"at most 40":            {Name: strings.Repeat("a", 41), Servers: 1, Nodes: 1},
		"at least one server":   {Name: "a", Nodes: 1},
		"cannot hold 3 servers": {Name: "a", Servers: 3, Nodes: 2},
		"too many":              {Name: "a", Servers: 1, Nodes: 101},
		"must be absolute":      {Name: "a", Servers: 1, Nodes: 1, Images: []string{"x.tar"}},
		"path x.yaml":           {Name: "a", Servers: 1, Nodes: 1, Config: "x.yaml"},
	} {
		err := p.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func TestNodes(t *testing.T) {
	r := Record{Name: "x", Network: netip.MustParsePrefix("10.222.7.0/24")}
	r.plan(Plan{Name: "x", Servers: 3, Nodes: 4})
	var got []string
	for _, n := range r.Nodes {
		got = append(got, n.Name+" "+n.IP.String())
	}
	want := []string{"x-server-1 10.222.7.11", "x-server-2 10.222.7.12", "x-server-3 10.222.7.13", "x-agent-1 10.222.7.14"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if api := r.API().String(); api != "10.222.7.2:6443" {
		t.Errorf("the API of several servers is at %s", api)
	}
	r.Nodes = r.Nodes[2:]
	if api := r.API().String(); api != "10.222.7.13:6443" {
		t.Errorf("the API of one server is at %s", api)
	}
	for _, name := range []string{"agent-1", "x-agent-1"} {
		if n, err := r.Node(name); err != nil || n.Name != "x-agent-1" {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
	if _, err := r.Node("agent-2"); err == nil || !strings.Contains(err.Error(), "it has x-server-3, x-agent-1") {
		t.Errorf("a node that is not there: %v", err)
	}
}

func TestPick(t *testing.T) {
	for want, taken := range map[string][]string{
		"10.222.0.0/24": {"10.42.0.0/16", "192.168.1.0/24", "0.0.0.0/1", "128.0.0.0/1"},
		"10.222.2.0/24": {"10.222.0.0/24", "10.222.1.128/25"},
		"10.222.8.0/24": {"10.222.0.0/21"},
		"":              {"10.0.0.0/8"},
	} {
		var prefixes []netip.Prefix
		for _, p := range taken {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		got, err := firstFree(prefixes)
		if want == "" && err == nil || want != "" && got.String() != want {
			t.Errorf("with %v: %s, %v", taken, got, err)
		}
	}
}

func TestLinkName(t *testing.T) {
	if got := linkName("local"); got != "cor-local" {
		t.Errorf("got %s", got)
	}
	a, b := linkName("a-very-long-name-1"), linkName("a-very-long-name-2")
	if a == b || len(a) > 15 {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestHandOver(t *testing.T) {
	now := time.Now()
	gone := Record{Name: "gone", Created: now, UserConfig: UserConfig{Path: "/k", Previous: "work", Made: []string{"/k"}}}
	older := Record{Name: "older", Created: now.Add(-time.Hour), UserConfig: UserConfig{Path: "/other"}}
	younger := Record{Name: "younger", Created: now.Add(time.Hour), UserConfig: UserConfig{Path: "/k", Previous: "coracle-gone"}}
	updated := handOver(gone, []Record{older, younger})
	if len(updated) != 1 || updated[0].Name != "younger" {
		t.Fatalf("got %+v", updated)
	}
	if h := updated[0]; h.UserConfig.Previous != "work" || !slices.Equal(h.UserConfig.Made, []string{"/k"}) {
		t.Errorf("got %+v", h)
	}
}

// TestChangeKeepsInheritance: what a removed cluster left to another one in the record's file outlives that one's next change.
func TestChangeKeepsInheritance(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	r := Record{Name: "younger", UserConfig: UserConfig{Path: "/k", Previous: "coracle-gone"}}
	h := &holder{store: s, record: r}
	r.UserConfig.Previous = "work"
	if err := os.MkdirAll(s.dir(r.Name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	if err := h.change(func(r *Record) { r.State = Running }); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(r.Name); err != nil || got.UserConfig.Previous != "work" || got.State != Running {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestChangeAndRemoval: another cluster is removed, and hands its state over, while the holder changes its own record.
func TestChangeAndRemoval(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	r := Record{Name: "younger", UserConfig: UserConfig{Path: "/k"}}
	if err := os.MkdirAll(s.dir(r.Name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	h := &holder{store: s, record: r}
	const times = 30
	var both sync.WaitGroup
	both.Go(func() {
		for range times {
			if err := h.change(func(r *Record) { r.Nodes = append(r.Nodes, Node{}) }); err != nil {
				t.Error(err)
			}
		}
	})
	both.Go(func() {
		for i := range times {
			unlock, err := s.lock(t.Context()) // as remove does
			if err != nil {
				t.Error(err)
				return
			}
			all, err := s.List()
			if err != nil {
				t.Error(err)
			}
			for _, o := range handOver(Record{Name: "gone", UserConfig: UserConfig{Path: "/k", Made: []string{fmt.Sprint(i)}}}, all) {
				if err := s.save(o); err != nil {
					t.Error(err)
				}
			}
			unlock()
		}
	})
	both.Wait()
	got, err := s.Load(r.Name)
	if err != nil || len(got.Nodes) != times || len(got.UserConfig.Made) != times {
		t.Errorf("%d changes of %d, %d removals of %d: %v", len(got.Nodes), times, len(got.UserConfig.Made), times, err)
	}
}

// TestFirewall: the nodes' packets pass another program's chain while the cluster exists.
func TestFirewall(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and nft")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
	nft := func(commands string) string {
		t.Helper()
		cmd := exec.Command("nft", "-f", "-") // it inherits this thread's network
		cmd.Stdin = strings.NewReader(commands)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	nft(chains)
	before := nft("list ruleset")
	a := Record{Name: "a", Network: netip.MustParsePrefix("10.222.7.0/24")}
	if err := openFirewall(a); err != nil {
		t.Fatal(err)
	}
	if got := nft("list chain ip filter FORWARD"); strings.Count(got, "10.222.7.0/24") != 2 || strings.Count(got, `accept comment "coracle-a"`) != 2 {
		t.Error(got)
	}
	if got := nft("list chain inet fw forward") + nft("list table ip6 filter"); strings.Contains(got, "coracle") {
		t.Error("a chain that accepts, or without the nodes' packets, was changed: " + got)
	}
	nft("table ip coracle-a { }\ntable ip coracle-ab { }\nadd rule ip filter FORWARD iifname cor-ab accept comment \"coracle-ab\"")
	// What an earlier version wrote.
	nft("insert rule ip filter FORWARD iifname cor-a accept comment \"coracle-a\"")
	if err := removeRules(a); err != nil {
		t.Fatal(err)
	}
	nft("delete table ip coracle-ab\nflush chain ip filter FORWARD")
	if after := nft("list ruleset"); after != before {
		t.Errorf("left is %s", after)
	}
}

const chains = `table ip nat {
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
	}
}
table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
	chain DOCKER {
	}
}
table ip6 filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
}
table inet fw {
	chain forward {
		type filter hook forward priority filter; policy accept;
	}
}
`

// TestUserConfig enters a cluster's context into kubeconfigs and takes it out again.
func TestUserConfig(t *testing.T) {
	const theirs = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts:\n  - name: work\n    context:\n      cluster: work # far away\n      user: me\ncurrent-context: work\n"
	const own = "apiVersion: v1\nkind: Config\nclusters:\n  - name: coracle-x\n    cluster: {server: https://10.222.0.11:6443}\nusers:\n  - name: coracle-x\n    user: {}\ncontexts:\n  - name: coracle-x\n    context: {cluster: coracle-x, user: coracle-x}\ncurrent-context: coracle-x\n"
	for name, before := range map[string]string{"another cluster's": theirs, "none": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, path := Store{Dir: filepath.Join(dir, "clusters")}, filepath.Join(dir, ".kube", "config")
			write(t, s.Kubeconfig("x"), own)
			if before != "" {
				write(t, path, before)
			}
			u, err := planUserConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			r := Record{Name: "x", UserConfig: u}
			if err := s.mergeUserConfig(r); err != nil {
				t.Fatal(err)
			}
			merged, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(merged), "current-context: coracle-x") {
				t.Errorf("merged: %s (%v)", merged, err)
			}
			if err := s.restoreUserConfig(r); err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(path)
			if string(after) != before || before == "" && !os.IsNotExist(err) {
				t.Errorf("after: %s (%v)", after, err)
			}
			if before == "" && paths.Exists(filepath.Dir(path)) {
				t.Error("the directory is left")
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLoad reads records of clusters that are gone, dead and unreadable.
func TestLoad(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if _, err := s.Load("x"); err == nil || !strings.Contains(err.Error(), "no other one") {
		t.Errorf("nothing there: %v", err)
	}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, holder := range map[string]Process{"alive": self, "dead": {PID: self.PID, Start: self.Start + 1, Boot: self.Boot}, "rebooted": {PID: self.PID, Start: self.Start}} {
		if err := os.MkdirAll(s.dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.save(Record{Name: name, State: Running, Holder: holder}); err != nil {
			t.Fatal(err)
		}
		want := Dead
		if name == "alive" {
			want = Running
		}
		if r, err := s.Load(name); err != nil || r.State != want {
			t.Errorf("%s: %s, %v", name, r.State, err)
		}
	}
	if _, err := s.Load("x"); err == nil || !strings.Contains(err.Error(), "there is alive, dead, rebooted") {
		t.Errorf("another one: %v", err)
	}
	write(t, s.recordFile("broken"), "{")
	if _, err := s.List(); err == nil || !strings.Contains(err.Error(), "cluster broken") {
		t.Errorf("a broken record: %v", err)
	}
}

// TestArguments: servers of local clusters make no backups, which nobody would look for.
func TestArguments(t *testing.T) {
	h := &holder{record: Record{Network: netip.MustParsePrefix("10.222.0.0/24"), Nodes: []Node{{Name: "x-server-1", Role: Server}, {Name: "x-server-2", Role: Server}, {Name: "x-agent-1", Role: Agent}}}}
	for _, n := range h.record.Nodes {
		if args := h.arguments(n); slices.Contains(args, "--etcd-disable-snapshots") != (n.Role == Server) {
			t.Errorf("%s is started with %q", n.Name, args)
		}
	}
}
