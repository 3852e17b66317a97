package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
)

// TestAMountThatIsLate lands while the directory below it is read: what was found is not what is there.
func TestAMountThatIsLate(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, kept := filepath.Join(base, "manifests"), filepath.Join(base, "kept")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, a.start(dir), a, "a", "a")
	move(t, dir, kept)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "z.yaml") // reading it waits for the test
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	d := a.start(dir)
	var scanning sync.WaitGroup
	scanning.Go(d.scan)
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	move(t, dir, dir+".below")
	move(t, kept, dir)
	writer.Close()
	scanning.Wait()
	d.step(t.Context())
	if exists, _ := a.look(); exists != "a" {
		t.Errorf("exists %q", exists)
	}
	expect(t, d, a, "a", "a")
}

// TestADirectoryOfTheSameFiles takes another's place, as a new checkout does that a link leads to: they are looked after there.
func TestADirectoryOfTheSameFiles(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, one, two := filepath.Join(base, "manifests"), filepath.Join(base, "one"), filepath.Join(base, "two")
	files := map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b", "c")}
	write(t, one, files)
	write(t, two, files)
	if err := os.Symlink(one, dir); err != nil {
		t.Fatal(err)
	}
	d := a.start(dir)
	expect(t, d, a, "a b c", "a b c")
	if err := os.Symlink(two, dir+".new"); err != nil {
		t.Fatal(err)
	}
	move(t, dir+".new", dir)
	expect(t, d, a, "a b c", "a b c")
	expect(t, d, a, "a b c", "")
	write(t, two, map[string]string{"y.yaml": configMaps("c")})
	expect(t, d, a, "a c", "c")
	os.Remove(filepath.Join(two, "x.yaml"))
	expect(t, d, a, "c", "")
}

// TestPlaceWithoutBirthTime does not contain the number of the device, which may change at a reboot.
func TestPlaceWithoutBirthTime(t *testing.T) {
	const dir = "/proc"
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME != 0 {
		t.Skipf("%s has a time of birth: %v", dir, err)
	}
	place, err := controlplaneuser.DirID(dir)
	if device := fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor); err != nil || place == "" || strings.Contains(place, device) {
		t.Errorf("the place is %q, %v", place, err)
	}
	if again, _ := controlplaneuser.DirID(dir); again != place {
		t.Errorf("the place is %q, then %q", place, again)
	}
	if other, _ := controlplaneuser.DirID("/proc/sys"); other == place {
		t.Error("another directory is the same place")
	}
}

// TestReplacedWhileItIsRead: the files that were found are not those of the directory that was identified before.
func TestReplacedWhileItIsRead(t *testing.T) {
	for name, replace := range map[string]func(dir string) error{
		"by another": func(dir string) error { return os.Mkdir(dir, 0o700) },
		"by nothing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a, dir := newAPI(t), filepath.Join(t.TempDir(), "manifests")
			write(t, dir, map[string]string{"x.yaml": configMaps("a")})
			expect(t, a.start(dir), a, "a", "a")
			pipe := filepath.Join(dir, "b.yaml") // reading it, before x.yaml, waits for the test
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			d := a.start(dir)
			var scanning sync.WaitGroup
			scanning.Go(d.scan)
			writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			move(t, dir, dir+".away")
			if err := replace(dir); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			scanning.Wait()
			a.later()
			d.step(t.Context())
			if exists, _ := a.look(); exists != "a" {
				t.Errorf("exists %q", exists)
			}
		})
	}
}
