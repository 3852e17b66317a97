package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestNoteIsDurableAndIdempotent(t *testing.T) {
	dirs := paths.Dirs{Data: filepath.Join(t.TempDir(), "data")}
	l := Open(dirs)
	cni := Entry{Kind: Link, Name: "no-such-link"}
	table := Entry{Kind: NFTTable, Name: "ip no-such-table"}
	for range 2 {
		if err := l.Note(cni, table); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(dirs.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	if err := Open(dirs).Note(table); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(dirs.Ledger())
	if !os.SameFile(before, after) {
		t.Error("noting what is there already rewrote the file")
	}
	expect(t, Open(dirs), cni, table)
}

func TestNoteReplacesChangedValues(t *testing.T) {
	l := Open(paths.Dirs{Data: t.TempDir()})
	for _, old := range []string{"0", "2"} {
		if err := l.Note(Entry{Kind: Sysctl, Name: "a.b", Old: old, New: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, l, Entry{Kind: Sysctl, Name: "a.b", Old: "2", New: "1"})
}

func TestForeignThingsAreNotOurs(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	l := Open(dirs)
	l.TableExists = func(name string) bool { return name == "ip foreign" }
	if err := l.Note(Entry{Kind: Link, Name: "lo"}, Entry{Kind: NFTTable, Name: "ip foreign"}); err != nil {
		t.Fatal(err)
	}
	expect(t, l)

	foreign := func(e Entry, want bool) {
		t.Helper()
		if got, err := Open(dirs).Foreign(e); err != nil || got != want {
			t.Errorf("foreign: %t, %v, want %t", got, err, want)
		}
	}
	foreign(Entry{Kind: Link, Name: "lo"}, true)
	foreign(Entry{Kind: Link, Name: "no-such-link"}, false)

	// What was noted in this boot stays ours when it exists; what was ours before a reboot is not.
	lo := Entry{Kind: Link, Name: "lo", Boot: state.BootID()}
	if err := l.write([]Entry{lo}); err != nil {
		t.Fatal(err)
	}
	if err := l.Note(lo); err != nil {
		t.Fatal(err)
	}
	expect(t, l, Entry{Kind: Link, Name: "lo"})
	foreign(lo, false)
	lo.Boot = "an earlier one"
	if err := l.write([]Entry{lo}); err != nil {
		t.Fatal(err)
	}
	foreign(lo, true)
	if err := Open(dirs).Note(lo); err != nil {
		t.Fatal(err)
	}
	expect(t, l)
}

func TestConcurrentNotes(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	var wg sync.WaitGroup
	for p := range 4 { // as if four processes
		l := Open(dirs)
		wg.Go(func() {
			for i := range 10 {
				if err := l.Note(Entry{Kind: Link, Name: fmt.Sprintf("link%d-%d", p, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries, err := Open(dirs).Entries()
	if err != nil || len(entries) != 40 {
		t.Errorf("%d entries, %v; want 40", len(entries), err)
	}
}

func TestMkdirAllNotesOnlyWhatWasMissing(t *testing.T) {
	dirs, root := paths.Dirs{Data: t.TempDir()}, t.TempDir()
	l := Open(dirs)
	if err := l.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, l, Entry{Kind: Dir, Name: filepath.Join(root, "a")}, Entry{Kind: Dir, Name: filepath.Join(root, "a", "b")})
}

func TestClaim(t *testing.T) {
	l, root := Open(paths.Dirs{Data: t.TempDir()}), t.TempDir()
	empty, full, missing := filepath.Join(root, "empty"), filepath.Join(root, "full"), filepath.Join(root, "missing")
	os.MkdirAll(empty, 0o755)
	os.MkdirAll(filepath.Join(full, "other"), 0o755)
	for range 2 {
		for _, dir := range []string{empty, full, missing} {
			if err := l.Claim(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(t, l, Entry{Kind: Contents, Name: empty}, Entry{Kind: Dir, Name: missing})
}

func TestDamagedLedgerIsNamed(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	os.WriteFile(dirs.Ledger(), []byte("{"), 0o600)
	if _, err := Open(dirs).Entries(); err == nil {
		t.Error("no error")
	}
}

func expect(t *testing.T, l *Ledger, want ...Entry) {
	t.Helper()
	got, err := l.Entries()
	for i := range got {
		if got[i].Kind.volatile() != (got[i].Boot != "") || !got[i].Current() {
			t.Errorf("%+v is not of this boot", got[i])
		}
		got[i].Boot = ""
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("entries %v, %v; want %v", got, err, want)
	}
}

// TestVolatile: things in the kernel end with the boot, and so do their entries; files do not.
func TestVolatile(t *testing.T) {
	for _, kind := range []Kind{Link, NFTTable, NFTRule, Mount, Cgroup, Sysctl, Propagation, AppArmor} {
		if !kind.volatile() {
			t.Errorf("%s outlives a reboot", kind)
		}
	}
	for _, kind := range []Kind{Dir, Contents, File, PodNetwork} {
		if kind.volatile() {
			t.Errorf("%s ends with the boot", kind)
		}
	}
}

func TestProfileLoaded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "profiles"), []byte("docker-default (enforce)\ncri.d-old (enforce)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !ProfileLoaded(dir, "docker-default") || ProfileLoaded(dir, "cri.d") || ProfileLoaded(dir+"/none", "docker-default") {
		t.Error("another profile is taken for one")
	}
}

// TestForgetKernel: a reset that keeps the data removes what is in the kernel; a later reset still has to find the files.
func TestForgetKernel(t *testing.T) {
	dirs := paths.Dirs{Data: filepath.Join(t.TempDir(), "data")}
	if err := Open(dirs).ForgetKernel(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dirs.Data); err == nil {
		t.Error("forgetting nothing made a data directory")
	}
	file, dir := Entry{Kind: File, Name: "/etc/no-such-file"}, Entry{Kind: Dir, Name: "/etc/no-such-dir"}
	if err := Open(dirs).Note(file, Entry{Kind: Link, Name: "no-such-link"}, Entry{Kind: Sysctl, Name: "a.b", Old: "0", New: "1"}, dir); err != nil {
		t.Fatal(err)
	}
	if err := Open(dirs).ForgetKernel(); err != nil {
		t.Fatal(err)
	}
	expect(t, Open(dirs), file, dir)
}

// TestFilesOfOthers: a file that is there is not coracle's to remove, even if coracle writes it then.
func TestFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	l := Open(paths.Dirs{Data: filepath.Join(dir, "data")})
	theirs, ours, link := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours"), filepath.Join(dir, "link")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{theirs, ours, link} {
		if err := l.NoteFile(path); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, l, Entry{Kind: File, Name: ours})
}
