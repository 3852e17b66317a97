package backup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTempDir: what a killed save has left is removed by the next one, and nothing that is in use or somebody else's.
func TestTempDir(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode, files ...string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(path, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	killed, empty := make(".snapshot-1", 0o700, "db.part"), make(".snapshot-2", 0o700)
	stays := []string{make(".snapshot-3", 0o700, "notes"), make(".snapshot-4", 0o755), make("snapshot-5", 0o700), make(".snapshot-6", 0o700, "db")}
	busy, err := lock(stays[3], unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if os.Geteuid() == 0 {
		others := make(".snapshot-8", 0o700, "db")
		if err := os.Chown(others, 60971, 60971); err != nil {
			t.Fatal(err)
		}
		stays = append(stays, others)
	}
	target := make("elsewhere", 0o700, "db")
	if err := os.Symlink(target, filepath.Join(dir, ".snapshot-7")); err != nil {
		t.Fatal(err)
	}
	first, doneFirst, err := TempDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, doneSecond, err := TempDir(dir) // at the same time
	if err != nil {
		t.Fatal(err)
	}
	if exists(killed) || exists(empty) {
		t.Error("what was left is still there")
	}
	for _, path := range append(stays, filepath.Join(target, "db"), first, second) {
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
	doneFirst()
	doneSecond()
	if exists(first) || exists(second) {
		t.Error("the directory stays")
	}
	if _, _, err := TempDir(filepath.Join(dir, "missing")); err == nil {
		t.Error("in a directory that is not there")
	}
}

// TestRemoveUnfinished: what a killed save to a file has left is removed, and nothing of others that only has such a name.
func TestRemoveUnfinished(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	for name, content := range map[string]string{
		".backup.12": ageMagic + "more", ".backup.13": zstdMagic + "more", ".backup.14": "", ".backup.about.json.15": "{",
		".backup.16": "notes", ".backup.x": ageMagic, ".backups.17": ageMagic, "backup": ageMagic,
	} {
		write(t, filepath.Join(filepath.Dir(file), name), content, 0o600)
	}
	if err := errors.Join(unix.Mkfifo(filepath.Join(filepath.Dir(file), ".backup.18"), 0o600), os.Symlink("backup", filepath.Join(filepath.Dir(file), ".backup.19"))); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(file); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range left {
		names = append(names, filepath.Base(path))
	}
	if want := []string{".backup.16", ".backup.18", ".backup.19", ".backup.x", ".backups.17", "backup"}; !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}
