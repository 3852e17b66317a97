package front

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestFirstSnapshot: what was due while the server did not run is made soon after the start, and a start delays nothing else.
func TestFirstSnapshot(t *testing.T) {
	f := &front{cfg: config.Config{Dirs: paths.Dirs{Data: t.TempDir()}, Snapshots: config.Snapshots{Schedule: "@every 12h"}}}
	note := f.cfg.Dirs.LastSnapshot()
	if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
		t.Fatal(err)
	}
	if in := time.Until(f.firstSnapshot()); in < 11*time.Hour {
		t.Errorf("without any: in %s", in)
	}
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for ago, want := range map[time.Duration]time.Duration{0: 12 * time.Hour, 10 * time.Hour: 2 * time.Hour, 100 * time.Hour: settleTime, -time.Hour: 12 * time.Hour} {
		last := time.Now().Add(-ago)
		if err := os.Chtimes(note, last, last); err != nil {
			t.Fatal(err)
		}
		if in := time.Until(f.firstSnapshot()); in < want-time.Minute || in > want+time.Minute {
			t.Errorf("the last one %s ago: in %s, want %s", ago, in, want)
		}
	}
}
