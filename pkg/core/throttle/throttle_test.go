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
				if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
				Limit(t.Context(), c.limit, dir, filepath.Join(dir, "missing"))
				defer rate.Store(0)
				began, data := time.Now(), bytes.Repeat([]byte("0123456789abcdef"), 10<<16)
				got, err := io.ReadAll(Reader(bytes.NewReader(data)))
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				if took := time.Since(began); took < c.takes*98/100 || took > c.takes*102/100 {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
