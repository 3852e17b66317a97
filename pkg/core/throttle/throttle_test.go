package throttle

import (
	"bytes"
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
