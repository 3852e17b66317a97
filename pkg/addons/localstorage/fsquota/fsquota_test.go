package fsquota

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fake is a kernel that keeps everything in maps.
type fake struct {
	off      error
	projects map[string]uint32
	limits   map[uint32]Usage
	fail     string // the call that fails
}

func (f *fake) enforces() error { return f.off }
func (f *fake) close() error    { return nil }

func (f *fake) project(dir *os.File) (uint32, error) { return f.projects[dir.Name()], nil }

func (f *fake) setProject(dir *os.File, id uint32) error {
	if f.fail == "setProject" {
		return unix.EIO
	}
	f.projects[dir.Name()] = id
	return nil
}

func (f *fake) usage(id uint32) (Usage, error) {
	u, ok := f.limits[id]
	if !ok {
		return u, unix.ENOENT
	}
	return u, nil
}

func (f *fake) setLimit(id uint32, bytes uint64) error {
	u := f.limits[id]
	u.Limit = bytes
	f.limits[id] = u
	return nil
}

// usageOf is what a directory with a limit takes.
func usageOf(fs *FS, dir *os.File) (Usage, error) {
	id, err := fs.own(dir)
	if err != nil {
		return Usage{}, err
	}
	return fs.kernel.usage(id)
}

func newFake() *fake { return &fake{projects: map[string]uint32{}, limits: map[uint32]Usage{}} }

func TestLimit(t *testing.T) {
	k := newFake()
	fs := open(k, "xfs")
	if !fs.Enforced() || fs.String() != "enforced (xfs)" {
		t.Error(fs)
	}
	a, b := os.NewFile(1000, "a"), os.NewFile(1001, "b")
	for range 2 {
		if err := fs.Limit(a, "pvc-1", 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.limits) != 1 || !isOwn(k.projects["a"]) {
		t.Errorf("done twice: %+v", k)
	}
	if err := fs.Limit(b, "pvc-1", 2<<20); err != nil { // the same number is tried first
		t.Fatal(err)
	}
	if k.projects["a"] == k.projects["b"] {
		t.Error("two directories share a project")
	}
	if err := fs.Resize(a, 3<<20); err != nil {
		t.Fatal(err)
	}
	if u, err := usageOf(fs, a); err != nil || u.Limit != 3<<20 {
		t.Errorf("%+v %v", u, err)
	}
	if u, err := usageOf(fs, b); err != nil || u.Limit != 2<<20 {
		t.Errorf("%+v %v", u, err)
	}
	if err := fs.Release(a); err != nil || k.limits[k.projects["a"]].Limit != 0 {
		t.Errorf("released: %v, %+v", err, k.limits)
	}
	c := os.NewFile(1002, "c")
	if err := fs.Resize(c, 1); !errors.Is(err, ErrNotEnforced) || !strings.Contains(err.Error(), "none of coracle's") {
		t.Errorf("a directory without a project: %v", err)
	}
}

// TestLimitAfterCrash: a number that got its limit and no directory is not given to anybody else's.
func TestLimitAfterCrash(t *testing.T) {
	k := newFake()
	fs := open(k, "xfs")
	a := os.NewFile(1000, "a")
	k.fail = "setProject"
	if err := fs.Limit(a, "pvc-1", 1<<20); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	k.fail = ""
	if err := fs.Limit(a, "pvc-1", 1<<20); err != nil {
		t.Fatal(err)
	}
	if u, err := usageOf(fs, a); err != nil || u.Limit != 1<<20 {
		t.Errorf("%+v %v", u, err)
	}
}

func TestNotEnforced(t *testing.T) {
	k := newFake()
	k.off = unix.ENOSYS
	fs := open(k, "ext4")
	a := os.NewFile(1000, "a")
	if fs.Enforced() || fs.String() != "not enforced: ext4 without project quotas" {
		t.Error(fs)
	}
	if err := fs.Limit(a, "x", 1); !errors.Is(err, ErrNotEnforced) {
		t.Error(err)
	}
	if err := fs.Resize(a, 1); !errors.Is(err, ErrNotEnforced) {
		t.Error(err)
	}
	if err := fs.Release(a); err != nil {
		t.Error(err)
	}
}

// TestSizes: the kernel copies exactly this much.
func TestSizes(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"fsxattr": {unsafe.Sizeof(fsxattr{}), 28}, "dqblk": {unsafe.Sizeof(dqblk{}), 72}, "fs_quota_statv": {unsafe.Sizeof(statv{}), 160},
	} {
		if c[0] != c[1] {
			t.Errorf("%s has %d bytes, want %d", name, c[0], c[1])
		}
	}
}

// TestLive limits a directory for real where the kernel can.
func TestLive(t *testing.T) {
	for _, make := range [][]string{
		{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"}, {"mkfs.xfs", "-q"},
	} {
		t.Run(make[0], func(t *testing.T) { live(t, make) })
	}
}

func live(t *testing.T, make []string) {
	scratch := t.TempDir()
	image, at := filepath.Join(scratch, "image"), filepath.Join(scratch, "disk")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 400<<20); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{append(make, image), {"mount", "-o", "loop,prjquota", image, at}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this machine has no project quotas to try: %s: %v: %s", strings.Join(argv[:1], " "), err, out)
		}
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	fs, err := Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	if !fs.Enforced() {
		t.Fatalf("%s was mounted with prjquota, and is %s", make[0], fs)
	}
	if err := os.Mkdir(filepath.Join(at, "volume"), 0o777); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(at, "volume"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := fs.Limit(dir, "pvc-1", 8<<20); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(at, "volume", "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 16<<20)), 0o600); !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("16 MiB in 8: %v", err)
	}
	if err := fs.Resize(dir, 32<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 16<<20)), 0o600); err != nil {
		t.Errorf("16 MiB in 32: %v", err)
	}
	if u, err := usageOf(fs, dir); err != nil || u.Limit != 32<<20 || u.Used < 16<<20 {
		t.Errorf("%+v %v", u, err)
	}
}
