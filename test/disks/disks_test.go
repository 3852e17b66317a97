package disks

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// write writes a file and syncs it if asked.
func write(t *testing.T, path, text string, sync bool) error {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

// TestDisk: a power cut loses what was not synced and nothing else, and faults come when they were asked for.
func TestDisk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir() // removed after the disk
	d := New(t, 64)
	d.Mount(dir)
	safe, unsafe := filepath.Join(dir, "safe"), filepath.Join(dir, "unsafe")
	if err := write(t, safe, "synced", true); err != nil {
		t.Fatal(err)
	}
	if err := write(t, unsafe, "not synced", false); err != nil {
		t.Fatal(err)
	}
	d.Cut(0, random)
	d.Unplug()
	d.Mount(dir)
	if text, err := os.ReadFile(safe); err != nil || string(text) != "synced" {
		t.Errorf("a file that was synced is %q after a power cut: %v", text, err)
	}
	if text, err := os.ReadFile(unsafe); err == nil && string(text) == "not synced" {
		t.Error("a file that was not synced survived a power cut")
	}

	d.Stall(300 * time.Millisecond)
	began := time.Now()
	if err := write(t, safe, "again", true); err != nil || time.Since(began) < 300*time.Millisecond {
		t.Errorf("with a stall it took %s: %v", time.Since(began), err)
	}
	d.Heal()

	d.FailWrite(1, 1000)
	if err := write(t, filepath.Join(dir, "fails"), "text", true); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed write was reported as %v", err)
	}
	d.Heal()
	d.Cut(1, random)
	d.Unplug()
	d.Mount(dir)
	if text, err := os.ReadFile(safe); err != nil || string(text) != "again" {
		t.Errorf("after a failure and a power cut the file is %q: %v", text, err)
	}
	d.FailFlush(1)
	if err := write(t, filepath.Join(dir, "fails"), "text", true); err == nil {
		t.Error("a failed flush was not reported")
	}
	_, _, failed := d.Counts()
	if failed < 2 {
		t.Errorf("only %d requests were failed", failed)
	}
	d.Heal()
	d.Unplug()
	d.Mount(dir)

	d.FillUp(1)
	old, err := os.OpenFile(safe, os.O_WRONLY, 0)
	if err == nil {
		_, err = old.WriteAt([]byte("fresh"), 0)
	}
	if err := errors.Join(err, old.Sync(), old.Close()); err != nil {
		t.Errorf("overwriting blocks of a full thin disk: %v", err)
	}
	err = write(t, filepath.Join(dir, "more"), string(make([]byte, 8<<20)), true)
	if _, _, now := d.Counts(); err == nil || now == failed {
		t.Errorf("new blocks of a full thin disk: %v, %d requests failed", err, now-failed)
	}
	d.Heal()
	d.Unplug()
	d.Mount(dir)
	if d.ReadOnly() {
		t.Error("it is read-only after a restart")
	}
	if d.Abort(); !d.ReadOnly() {
		t.Error("it is not read-only after Abort")
	}
}

// TestFailedWriteIsTold: whichever write of a large file fails, who flushes the file gets an error, or the disk has all of it.
func TestFailedWriteIsTold(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 256<<10)
	told := 0
	for n := 1; n <= 12; n++ {
		dir := t.TempDir()
		d := New(t, 64)
		d.Mount(dir)
		d.FailWrite(n, 1)
		file := filepath.Join(dir, "file")
		if err := write(t, file, text, true); err != nil {
			told++
			continue
		}
		d.Cut(0, rand.New(rand.NewPCG(1, 1)))
		d.Unplug()
		d.Heal()
		d.Mount(dir)
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("write %d failed, nobody was told, and the file is damaged: %v", n, err)
		}
	}
	if told == 0 {
		t.Error("no failed write was told")
	}
}
