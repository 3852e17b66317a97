package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// mounts reads the text of a mount table.
func mounts(t *testing.T, text string) []*mountinfo.Info {
	t.Helper()
	all, err := mountinfo.GetMountsFromReader(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestShared(t *testing.T) {
	const root = "27 1 254:0 / / rw,relatime %s - ext4 /dev/vda rw\n"
	tests := []struct {
		name, mounts string
		want         bool
	}{
		{"private", strings.ReplaceAll(root, " %s", ""), false},
		{"shared", strings.ReplaceAll(root, "%s", "shared:1"), true},
		{"slave and shared", strings.ReplaceAll(root, "%s", "master:3 shared:9"), true},
		{"slave", strings.ReplaceAll(root, "%s", "master:1"), false},
		{"covered by a private one", strings.ReplaceAll(root, "%s", "shared:1") + strings.ReplaceAll(root, " %s", ""), false},
		{"another is shared", strings.ReplaceAll(root, " %s", "") + "28 27 0:5 / /run rw shared:2 - tmpfs tmpfs rw\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			private := slices.ContainsFunc(unshared(mounts(t, tt.mounts)), func(e ledger.Entry) bool { return e.Name == "/" })
			if private == tt.want {
				t.Errorf("got %v", !private)
			}
		})
	}
}

func TestSatisfied(t *testing.T) {
	tests := []struct {
		s    footprint.Sysctl
		have string
		want bool
	}{
		{footprint.Sysctl{Value: "1"}, "1", true},
		{footprint.Sysctl{Value: "1"}, "0", false},
		{footprint.Sysctl{Value: "1"}, "2", false},
		{footprint.Sysctl{Value: "8192", AtLeast: true}, "10000", true},
		{footprint.Sysctl{Value: "8192", AtLeast: true}, "8192", true},
		{footprint.Sysctl{Value: "8192", AtLeast: true}, "128", false},
		{footprint.Sysctl{Value: "8192", AtLeast: true}, "", false},
	}
	for _, tt := range tests {
		if got := satisfied(tt.s, tt.have); got != tt.want {
			t.Errorf("%+v with %q: %v", tt.s, tt.have, got)
		}
	}
}

func TestEvacuate(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := moveProcesses(from, to); err != nil {
		t.Errorf("an empty cgroup: %v", err)
	}
	if err := os.WriteFile(filepath.Join(from, "cgroup.procs"), []byte("1\n7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := moveProcesses(from, to); err == nil { // these files do not move processes
		t.Error("it does not notice that processes stay")
	}
}
