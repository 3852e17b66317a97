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

// TestReader: all is read, no faster than the limit, and as fast as it comes without one.
func TestReader(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		takes time.Duration
	}{
		"no limit":         {0, 0},
		"a MiB per second": {1 << 20, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				f, err := os.Create(filepath.Join(dir, "file"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if c.limit > 0 {
					defer Limit(c.limit, dir)()
				}
				began, data := time.Now(), bytes.Repeat([]byte("0123456789abcdef"), 10<<16)
				if n, err := io.Copy(File(f), Reader(bytes.NewReader(data))); err != nil || n != int64(len(data)) {
					t.Errorf("%d bytes, %v", n, err)
				}
				if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				if took := time.Since(began); took < c.takes*97/100 || took > c.takes*102/100 {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
