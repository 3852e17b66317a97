package filewatch

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestChanges announces a change once, and only after it has settled.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Int64
		changes := Changes(t.Context(), func() string { return strconv.FormatInt(state.Load(), 10) })
		announced := func(within time.Duration) bool {
			select {
			case <-changes:
				return true
			case <-time.After(within):
				return false
			}
		}
		if announced(time.Hour) {
			t.Error("announced without a change")
		}
		began := time.Now()
		for range 40 { // somebody writes for two seconds
			state.Add(1)
			if announced(Settle / 2) {
				t.Error("announced while it changed")
			}
		}
		if !announced(Interval + Settle) {
			t.Error("not announced")
		}
		if took := time.Since(began); took > 40*Settle/2+Settle+Settle/2 {
			t.Errorf("announced after %s", took)
		}
		if announced(time.Hour) {
			t.Error("announced twice")
		}
	})
}

// TestSlowLooks notices a change soon although one look took long. Where all of them do, there is longest before the look that finds it, and before the
// one that finds it settled.
func TestSlowLooks(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  func(look int) bool
		limit time.Duration
	}{
		{"one", func(look int) bool { return look == 2 }, 3 * Interval},
		{"all", func(int) bool { return true }, 2 * (longest + Interval)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var looks, state atomic.Int64
				changes := Changes(t.Context(), func() string {
					if c.slow(int(looks.Add(1))) {
						time.Sleep(Interval)
					}
					return strconv.FormatInt(state.Load(), 10)
				})
				time.Sleep(6 * Interval)
				began := time.Now()
				state.Add(1)
				<-changes
				if took := time.Since(began); took > c.limit {
					t.Errorf("noticed after %s", took)
				}
			})
		})
	}
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(file, link))
	states := map[string]string{}
	expectNew := func(what string) {
		t.Helper()
		now := State(link)
		if before, known := states[now]; known {
			t.Errorf("%s: the same state as %s", what, before)
		}
		if again := State(link); again != now {
			t.Errorf("%s: %s, then %s", what, now, again)
		}
		states[now] = what
	}
	expectNew("a link without a target")
	write("a")
	expectNew("a file")
	write("ab")
	expectNew("another size")
	must(os.Rename(file, file+".old"))
	must(os.WriteFile(file, []byte("ab"), 0o600))
	expectNew("another file")
	must(os.Remove(link))
	expectNew("no link")
	must(os.Symlink(file+".none", link))
	expectNew("a link to another missing file")
}
