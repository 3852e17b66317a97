package throttle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimit: all is copied, no faster than the limit, and as fast as it comes without one.
func TestLimit(t *testing.T) {
	for name, c := range map[string]struct {
		reads, writes bool
		takes         time.Duration
	}{
		"no limit": {false, false, 0},
		"reader":   {true, false, 10 * time.Second},
		"writer":   {false, true, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				f, err := os.Create(filepath.Join(dir, "file"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				limit, end := New(1<<20, dir, filepath.Join(dir, "missing"))
				defer end()
				var reads, writes *Limit
				if c.reads {
					reads = limit
				}
				if c.writes {
					writes = limit
				}
				began, data := time.Now(), bytes.Repeat([]byte("0123456789abcdef"), 10<<16)
				from := struct{ io.Reader }{bytes.NewReader(data)} // without WriteTo, which would write all at once
				if n, err := io.Copy(writes.Writer(f), reads.Reader(from)); err != nil || n != int64(len(data)) {
					t.Errorf("%d bytes, %v", n, err)
				}
				if took := time.Since(began); took < c.takes-2*catchUp || took > c.takes+catchUp {
					t.Errorf("it took %s", took)
				}
				if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		})
	}
}

// TestRemoveAll removes files of all sizes in directories, and what is not there.
func TestRemoveAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"empty": 0, "small": 1, "below/large": 40 << 20} {
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o600), os.Truncate(filepath.Join(dir, name), size)); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(t.TempDir(), "linked")
	if err := errors.Join(os.WriteFile(linked, nil, 0o600), os.Truncate(linked, 40<<20), os.Symlink(linked, filepath.Join(dir, "link")), os.Link(linked, filepath.Join(dir, "other-name"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "below", "large"), dir, dir} {
		if err := RemoveAll(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if info, err := os.Stat(linked); err != nil || info.Size() != 40<<20 {
		t.Errorf("what a link leads to was changed: %v, %v", info, err)
	}
}
