package reset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

func TestInside(t *testing.T) {
	for path, want := range map[string]bool{
		"/run/coracle/containerd": true, "/run/coracle": false, "/run/coracle-2": false, "/run/coracle2/x": false, "/run": false, "/": false,
	} {
		if got := inside(path, "/run/coracle"); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if inside("/run/coracle", "") || inside("/run/coracle", "/") {
		t.Error("everything is inside of a directory that is not set")
	}
}

// TestLinkedDirs: where links lead to coracle's directories, or to those above, mounts are still found, and what is not coracle's stays.
func TestLinkedDirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m, root := host(t)
	remote := filepath.Join(root, "remote")
	move := func(dir, to string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(dir, to), os.Symlink(to, dir)); err != nil {
			t.Fatal(err)
		}
	}
	move(m.dirs.Kubelet, filepath.Join(root, "disk", "kubelet"))
	move(m.dirs.Data, filepath.Join(root, "disk", "coracle"))
	move(filepath.Dir(m.dirs.Run), filepath.Join(root, "volatile"))
	os.MkdirAll(remote, 0o755)
	for _, file := range []string{filepath.Join(remote, "file"), filepath.Join(m.dirs.Data, "diary")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{filepath.Join(m.dirs.Kubelet, "pods", ourUID, "mount"), filepath.Join(m.dirs.Run, "rootfs"), filepath.Join(m.dirs.Data, "storage", "mine")} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount(remote, dir, "", unix.MS_BIND, "")); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	for _, find := range []func(context.Context, *machine) ([]Item, error){findMounts, findRun, findVolumes, findDirs} {
		apply(t, m, find)
	}
	want := []string{"/disk/coracle/diary", "/disk/coracle/storage/mine/file", "/disk/kubelet/notes-of-a-person", "/remote/file", "/var/lib/coracle", "/var/lib/kubelet"}
	got := slices.DeleteFunc(tree(t, root), func(path string) bool {
		return !slices.Contains([]string{"disk", "remote", "volatile", "var"}, strings.Split(path, "/")[1]) || strings.HasPrefix(path, "/var/log/")
	})
	if !slices.Equal(got, want) {
		t.Errorf("left:\n%s", strings.Join(got, "\n"))
	}
}

// TestNamespacesOfOthersStay: another program that uses CNI names them as coracle's containerd does.
func TestNamespacesOfOthersStay(t *testing.T) {
	m, _ := host(t)
	dir := m.host(footprint.NetNSDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cni-" + ourUID, "cni-" + foreignUID, "vpn"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.seen.database = []byte("… cni-" + ourUID + " …")
	apply(t, m, findNetNS)
	if got := tree(t, dir); !slices.Equal(got, []string{"/cni-" + foreignUID, "/vpn"}) {
		t.Errorf("left: %q", got)
	}
}
