package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ stat, cmdline string }{
		"1":    {"1 (init) S 0 1 1 0", "/sbin/init\x00"},
		"20":   {"20 (a) b (c) S 1 20 20 0", "/bin/shim\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/c.sock\x00"},
		"21":   {"21 (x) R 20 20 20 0", ""},
		"self": {"", ""},
	} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(dir, "stat"), []byte(p.stat), 0o644)
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(p.cmdline), 0o644)
	}
	table, err := processes(proc)
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	for _, p := range table {
		parents[p.pid] = p.parent
	}
	if len(table) != 3 || parents[20] != 1 || parents[21] != 20 {
		t.Errorf("got %+v", table)
	}
}

func TestShimOf(t *testing.T) {
	c := Containerd{Shim: "/bin/shim", Socket: "/run/c.sock"}
	tests := []struct{ cmdline, want string }{
		{"/bin/shim -namespace k8s.io -id abc -address /run/c.sock", "abc"},
		{"/bin/shim -namespace k8s.io -id abc -address /run/other.sock", ""},
		{"/bin/other -namespace k8s.io -id abc -address /run/c.sock", ""},
		{"/bin/shim -namespace k8s.io -address /run/c.sock -id abc delete", ""},
		{"/bin/shim -id", ""},
		{"", ""},
	}
	for _, tt := range tests {
		if got := c.shimOf(process{args: strings.Split(tt.cmdline, " ")}); got != tt.want {
			t.Errorf("%q is the shim of %q", tt.cmdline, got)
		}
	}
}

func TestNamespaceOf(t *testing.T) {
	tests := []struct{ info, want string }{
		{`{"sandboxMetadata":{"Version":"v1","Metadata":{"NetNSPath":"/var/run/netns/cni-1"}}}`, "/var/run/netns/cni-1"},
		{`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/cni-2"}]}}}`, "/run/netns/cni-2"},
		{`{}`, ""},
	}
	for _, tt := range tests {
		if got, err := namespaceOf(tt.info); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v", tt.info, got, err)
		}
	}
	if _, err := namespaceOf("nonsense"); err == nil {
		t.Error("nonsense is understood")
	}
}

func TestMentions(t *testing.T) {
	const ours, foreign = "cni-01234567-89ab-cdef-0123-456789abcdef", "cni-fedcba98-7654-3210-fedc-ba9876543210"
	database := []byte("\x00\x01{\"NetNSPath\":\"/var/run/netns/" + ours + "\"}")
	for name, want := range map[string]bool{ours: true, foreign: false, "cni-0123": false} {
		if got := mentions(database, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
