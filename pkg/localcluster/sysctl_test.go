package localcluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

const eth0Forwarding = "net/ipv4/conf/eth0/forwarding"

// fakeSysctls are settings in a directory, and what they are at first.
func fakeSysctls(t *testing.T) (sysctls, map[string]string) {
	s := sysctls{dir: filepath.Join(t.TempDir(), "clusters"), proc: t.TempDir()}
	values := map[string]string{
		eth0Forwarding: "0", "net/ipv4/conf/docker0/forwarding": "1", forwardAll: "0", "vm/overcommit_memory": "2",
		notInterfaces[0]: "0", notInterfaces[1]: "0",
	}
	for name, value := range values {
		write(t, filepath.Join(s.proc, name), value+"\n")
	}
	return s, values
}

func (s sysctls) all(names map[string]string) map[string]string {
	values := map[string]string{}
	for name := range names {
		values[name], _ = s.read(name)
	}
	return values
}

// use changes the settings as a cluster's nodes do.
func (s sysctls) use(t *testing.T, record string, holder Process) {
	t.Helper()
	if err := s.Hold(t.Context(), record, holder); err != nil {
		t.Error(err)
	}
	if err := s.write("vm/overcommit_memory", "1"); err != nil {
		t.Error(err)
	}
}

func (s sysctls) end(t *testing.T, record string) {
	t.Helper()
	if err := s.Release(t.Context(), record); err != nil {
		t.Error(err)
	}
}

func (s sysctls) wantRestored(t *testing.T, before map[string]string) {
	t.Helper()
	if now := s.all(before); !maps.Equal(now, before) {
		t.Errorf("settings are %v, want %v", now, before)
	}
	if paths.Exists(s.dir) {
		t.Errorf("%s is left", s.dir)
	}
}

func (s sysctls) wantForwarding(t *testing.T, want string) {
	t.Helper()
	if got, _ := s.read(eth0Forwarding); got != want {
		t.Errorf("forwarding of eth0 is %s, want %s", got, want)
	}
}

func thisProcess(t *testing.T) Process {
	p, err := describeProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSysctlsAreRestoredByTheLast lets two clusters begin and end in each order.
func TestSysctlsAreRestoredByTheLast(t *testing.T) {
	self := thisProcess(t)
	for _, last := range []string{"a", "b"} {
		s, before := fakeSysctls(t)
		s.use(t, "/clusters/a", self)
		s.use(t, "/other/clusters/b", self)
		if last == "a" {
			s.end(t, "/other/clusters/b")
		} else {
			s.end(t, "/clusters/a")
		}
		s.wantForwarding(t, "1")
		s.end(t, map[string]string{"a": "/clusters/a", "b": "/other/clusters/b"}[last])
		s.wantRestored(t, before)
	}
}

// TestSysctlsOfManyClusters: clusters begin and end at the same time.
func TestSysctlsOfManyClusters(t *testing.T) {
	s, before := fakeSysctls(t)
	self := thisProcess(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			record := fmt.Sprintf("/clusters/%d", i)
			for range 5 {
				s.use(t, record, self)
				s.wantForwarding(t, "1")
				s.end(t, record)
			}
		})
	}
	all.Wait()
	s.wantRestored(t, before)
}

// TestSysctlsOfKilledCluster: a killed cluster holds as long as its record is there, because it still has to be removed; one of
// which nothing is left holds nothing.
func TestSysctlsOfKilledCluster(t *testing.T) {
	s, before := fakeSysctls(t)
	killed := thisProcess(t)
	killed.Start++ // the number was reused
	record := filepath.Join(t.TempDir(), "cluster.json")
	write(t, record, "{}")
	s.use(t, record, killed)
	s.use(t, "/clusters/b", thisProcess(t))
	s.end(t, "/clusters/b")
	s.wantForwarding(t, "1")
	s.end(t, record)
	s.wantRestored(t, before)

	s.use(t, "/clusters/a", killed)
	s.use(t, "/clusters/b", thisProcess(t))
	s.end(t, "/clusters/b")
	s.wantRestored(t, before)
}

// TestSysctlsOfOthers: settings that other programs have changed meanwhile, and those of an earlier boot.
func TestSysctlsOfOthers(t *testing.T) {
	s, before := fakeSysctls(t)
	s.use(t, "/clusters/a", thisProcess(t))
	if err := s.write(forwardAll, "1"); err != nil {
		t.Fatal(err)
	}
	s.end(t, "/clusters/a")
	s.wantForwarding(t, "1")
	if got, _ := s.read("vm/overcommit_memory"); got != before["vm/overcommit_memory"] {
		t.Errorf("vm.overcommit_memory is %s", got)
	}

	s, before = fakeSysctls(t)
	write(t, s.file(), `{"boot": "earlier", "values": {"vm/overcommit_memory": "7"}, "holders": {"/": {"pid": 1}}}`)
	s.use(t, "/clusters/a", thisProcess(t))
	s.end(t, "/clusters/a")
	s.wantRestored(t, before)
}

// TestSysctlsOfEarlierVersion: a cluster of a version that kept the values in its record is removed before or after one of this version.
func TestSysctlsOfEarlierVersion(t *testing.T) {
	for _, first := range []string{"old", "new"} {
		s, before := fakeSysctls(t)
		store := Store{Dir: t.TempDir()}
		self := thisProcess(t)
		write(t, store.recordFile("old"), fmt.Sprintf(`{"name": "old", "keeper": {"pid": %d, "start": %d, "boot": %q},
			"sysctls": {%q: "0", "net/ipv4/conf/docker0/forwarding": "1", "vm/overcommit_memory": "2"}}`, self.PID, self.Start, self.Boot, eth0Forwarding))
		for name, value := range map[string]string{eth0Forwarding: "1", "vm/overcommit_memory": "1"} {
			if err := s.write(name, value); err != nil {
				t.Fatal(err)
			}
		}
		end := func(name string) {
			s.earlier = store.earlierSysctls()
			s.end(t, store.realRecordFile(name))
			if err := os.RemoveAll(store.dir(name)); err != nil {
				t.Fatal(err)
			}
		}
		s.earlier = store.earlierSysctls()
		s.use(t, store.realRecordFile("new"), self)
		end(first)
		s.wantForwarding(t, "1")
		end(map[string]string{"old": "new", "new": "old"}[first])
		s.wantRestored(t, before)
	}
	s, before := fakeSysctls(t) // the only cluster
	s.earlier = []heldSysctls{{thisProcess(t).Boot, map[string]string{eth0Forwarding: "0"}, map[string]Process{"/clusters/old": thisProcess(t)}}}
	if err := s.write(eth0Forwarding, "1"); err != nil {
		t.Fatal(err)
	}
	s.end(t, "/clusters/old")
	s.wantRestored(t, before)
}

// TestRealRecordFile: the cluster that is removed is the one that was made, whatever its directory is called by.
func TestRealRecordFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "real", "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	want := Store{Dir: filepath.Join(dir, "real")}.realRecordFile("c")
	for _, name := range []string{"real", "./link", filepath.Join(dir, "link")} {
		if got := (Store{Dir: name}).realRecordFile("c"); got != want {
			t.Errorf("below %s it is %s, not %s", name, got, want)
		}
	}
}
