package localcluster

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

const aLayer = "node/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs/"

// TestClone takes a node's disk into a snapshot and out of it again.
func TestClone(t *testing.T) {
	from, sealed, to := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, from+"/server/etcd/member/snap/db", "changes"+strings.Repeat("\x00", 3*block)+"more")
	put(t, from+"/server/etcd/member/wal/0.tmp", "room")
	put(t, from+"/"+aLayer+"bin/tool", "fixed")
	put(t, from+"/node/cni/lease", "text")
	if err := os.Link(from+"/node/cni/lease", from+"/node/cni/other"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("lease", from+"/node/cni/link"); err != nil {
		t.Fatal(err)
	}
	then := time.Unix(1000, 0)
	if err := os.Chtimes(from+"/server/etcd/member/snap/db", then, then); err != nil {
		t.Fatal(err)
	}
	in := &clone{from: from, to: sealed, fixed: isImmutable, skip: isPreallocated}
	if err := in.run("."); err != nil {
		t.Fatal(err)
	}
	out := &clone{from: sealed, to: to, fixed: isImmutable, marks: in.marks, put: true}
	if err := out.run("."); err != nil {
		t.Fatal(err)
	}
	if err := out.finish(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/server/etcd/member/snap/db", "/" + aLayer + "bin/tool", "/node/cni/other", "/node/cni/link"} {
		want, _ := os.ReadFile(from + path)
		if got, err := os.ReadFile(to + path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, %d bytes", path, err, len(got))
		}
	}
	info, err := os.Stat(to + "/server/etcd/member/snap/db")
	if err != nil || info.Mode().Perm() != 0o640 || !info.ModTime().Equal(then) {
		t.Errorf("%v, %v", info, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 >= 3*block {
		t.Errorf("zeros take %d bytes", st.Blocks*512)
	}
	if paths.Exists(to + "/server/etcd/member/wal/0.tmp") {
		t.Error("room for etcd's log was copied")
	}
	if inode(t, from+"/"+aLayer+"bin/tool") != inode(t, to+"/"+aLayer+"bin/tool") {
		t.Error("an image's layer was copied")
	}
	if inode(t, from+"/server/etcd/member/snap/db") == inode(t, to+"/server/etcd/member/snap/db") {
		t.Error("the database of two clusters is one file")
	}
	if inode(t, to+"/node/cni/lease") != inode(t, to+"/node/cni/other") {
		t.Error("a file with two names has become two")
	}
}

// TestMarks takes overlayfs' marks along, which need root.
func TestMarks(t *testing.T) {
	from, sealed, to := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, from+"/"+aLayer+"dir/file", "x")
	if err := unix.Mknod(from+"/"+aLayer+"gone", unix.S_IFCHR, 0); err != nil {
		t.Skip("making a file that stands for one that is gone: ", err)
	}
	if err := unix.Lsetxattr(from+"/"+aLayer+"dir", opaque, []byte("y"), 0); err != nil {
		t.Skip("making a directory opaque: ", err)
	}
	in := &clone{from: from, to: sealed}
	if err := in.run("."); err != nil {
		t.Fatal(err)
	}
	if paths.Exists(sealed + "/" + aLayer + "gone") {
		t.Error("a snapshot holds what an overlayfs cannot")
	}
	out := &clone{from: sealed, to: to, marks: in.marks, put: true}
	if err := out.run("."); err != nil {
		t.Fatal(err)
	}
	if err := out.finish(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(to+"/"+aLayer+"gone", &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("%v, mode %o", err, st.Mode)
	}
	value := make([]byte, 8)
	if n, err := unix.Lgetxattr(to+"/"+aLayer+"dir", opaque, value); err != nil || string(value[:n]) != "y" {
		t.Errorf("%v, %q", err, value)
	}
}

func TestKeyless(t *testing.T) {
	for config, want := range map[string]string{
		"":                                 "",
		"node-label: [a=b]\n":              "",
		"disable: [dns]\n# token: x\n":     "",
		"{encryption-provider-config: /x}": "encrypted with a key",
		"\"agent-token\": abc\n":           "agent-token",
		"token-file: /etc/x\n":             "token-file",
	} {
		if err := checkKeyless(config); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
}

func TestForkedNodes(t *testing.T) {
	one := Snapshot{Name: "sealed", Cluster: "base", Nodes: []SnapshotNode{
		{Name: "base-server-1", Role: Server, IP: netip.MustParseAddr("10.222.0.11")}, {Name: "base-agent-1", Role: Agent, IP: netip.MustParseAddr("10.222.0.12")},
	}}
	r := Record{Name: "new", Network: netip.MustParsePrefix("10.222.7.0/24")}
	if err := r.fork(Plan{Name: "new", Servers: 1, Nodes: 3}, one); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range r.Nodes {
		got = append(got, n.Name+" "+n.IP.String()+" "+n.Cgroup)
	}
	want := "base-server-1 10.222.7.11 coracle-new/base-server-1, base-agent-1 10.222.7.12 coracle-new/base-agent-1, base-agent-2 10.222.7.13 coracle-new/base-agent-2"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q", got)
	}
	for _, p := range []Plan{{Servers: 1, Nodes: 1}, {Servers: 3, Nodes: 3}} {
		if err := new(Record).fork(p, one); err == nil || !strings.Contains(err.Error(), "snapshot sealed is of 2 nodes with 1 server") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// TestSealedSettings keeps what objects hold, and nothing that lets anybody in.
func TestSealedSettings(t *testing.T) {
	from, to := paths.Dirs{Data: t.TempDir()}, paths.Dirs{Data: t.TempDir()}
	m := join.Memory{Joined: true, Cluster: join.Cluster{Servers: []string{"10.222.0.11:6443"}, CA: []byte("ca"),
		Settings: config.ClusterSettings{"cluster-cidr": "10.42.0.0/16", "hardened": "true", "encryption-provider-config": "secret"}}}
	if err := os.MkdirAll(filepath.Dir(from.ServerCluster()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.Save(from.ServerCluster()); err != nil {
		t.Fatal(err)
	}
	if err := snapshotSettings(from, to); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(to.ServerCluster())
	if err != nil || strings.Contains(string(data), "secret") || strings.Contains(string(data), "10.222") {
		t.Errorf("%v: %s", err, data)
	}
	var got join.Memory
	if err := json.Unmarshal(data, &got); err != nil || got.Joined || got.Settings["cluster-cidr"] != "10.42.0.0/16" || got.Settings["hardened"] != "true" {
		t.Errorf("%v: %s", err, data)
	}
}

func TestSnapshots(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	for i, name := range []string{"second", "first", ".half"} {
		one := Snapshot{Name: name, Created: time.Unix(int64(100-i), 0)}
		if err := os.MkdirAll(s.snapshot(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := one.write(s.snapshot(name, snapshotFile)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Snapshots()
	if err != nil || len(all) != 2 || all[0].Name != "first" || len(s.names()) != 0 {
		t.Errorf("%v: %+v, clusters %q", err, all, s.names())
	}
	if _, err := s.SnapshotCluster("none", "first"); err == nil || !strings.Contains(err.Error(), "there is no local cluster none") {
		t.Error(err)
	}
	for _, name := range []string{"first", "second"} {
		if err := s.RemoveSnapshot(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if err := s.RemoveSnapshot(t.Context(), "first"); err == nil {
		t.Error("a snapshot is removed twice")
	}
}
