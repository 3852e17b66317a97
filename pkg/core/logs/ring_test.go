package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

const stamp = "2026-11-21T10:44:00.123Z "

// lines is what a ring holds for a filter.
func lines(t *testing.T, path string, filter Filter) (out []string) {
	t.Helper()
	err := Read(path, &filter, func(s string) error {
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "x.log")
	for round := range 2 {
		r := OpenRing(path)
		r.Clean = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
		r.Line(stamp + fmt.Sprintf("INFO  a: %d hunter2", round))
		r.Close()
		r.Line("after the end")
		r.Close()
		// As a power loss leaves it: no end of the line, or zeros.
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, []string{stamp + "INFO  a: torn", "\x00\x00\n"}[round])
		f.Close()
	}
	want := []string{stamp + "INFO  a: 0 ***", stamp + "INFO  a: torn", stamp + "INFO  a: 1 ***"}
	if got := lines(t, path, Filter{}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRingIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	r := OpenRing(path)
	text := strings.Repeat("x", 200<<10)
	for i := range 150 { // 30 MB
		for len(r.wake) > 0 { // it has not looked yet
			time.Sleep(time.Millisecond)
		}
		r.Line(fmt.Sprint(i, text))
	}
	r.Close()
	var size int64
	for _, name := range Files(path) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	got := lines(t, path, Filter{})
	if len(Files(path)) != ringFiles || size > ringFiles*ringFile || !strings.HasPrefix(got[len(got)-1], "149x") {
		t.Errorf("%d files with %d bytes", len(Files(path)), size)
	}
	if len(got) < 70 || !slices.IsSortedFunc(got, func(a, b string) int { return number(a) - number(b) }) {
		t.Errorf("%d lines", len(got))
	}
}

func number(line string) (n int) {
	_, _ = fmt.Sscanf(line, "%dx", &n)
	return n
}

// TestRingWithoutDisk: a disk that takes nothing stops nobody, and is told of once it takes something again.
func TestRingWithoutDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	r := OpenRing(filepath.Join(dir, "x.log"))
	for range 3 {
		r.Line("lost")
	}
	for lost, tries := 0, 0; lost != 3; tries++ {
		r.mu.Lock()
		lost = r.lost
		r.mu.Unlock()
		if tries > 10_000 {
			t.Fatalf("%d lines are lost, want 3", lost)
		}
		time.Sleep(time.Millisecond)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r.Line("kept")
	r.Close()
	got := lines(t, r.file.Path, Filter{})
	if len(got) != 2 || !strings.Contains(got[0], "3 lines are missing here") || got[1] != "kept" {
		t.Errorf("%q", got)
	}
}

func TestRingSyncs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int32
		r := OpenRing(filepath.Join(dir, "x.log"))
		r.sync = func() error { syncs.Add(1); return nil }
		expect := func(when string, n int32) {
			t.Helper()
			synctest.Wait()
			if got := syncs.Load(); got != n {
				t.Errorf("%s: %d syncs, want %d", when, got, n)
			}
		}
		time.Sleep(time.Hour)
		expect("idle", 0)
		r.Line(stamp + "INFO  one")
		r.Line(stamp + "INFO  two")
		time.Sleep(syncOther - time.Second)
		expect("before", 0)
		time.Sleep(2 * time.Second)
		expect("after", 1)
		r.Line(stamp + "INFO  three")
		r.Line("panic: boom")
		time.Sleep(2 * syncAlarming)
		expect("alarming", 2)
		time.Sleep(time.Hour)
		expect("idle again", 2)
		r.Close()
		expect("closed", 3)
	})
}

func TestFilter(t *testing.T) {
	at := func(s string) time.Time {
		got, err := time.Parse(timeFormat, s)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	all := []string{
		"begins in the middle of a stack",
		"2026-11-21T10:00:00.000Z INFO  etcd: old",
		"2026-11-21T11:00:00.000Z INFO  etcd: new",
		"2026-11-21T11:00:00.000Z ERROR kubelet: bad",
		"goroutine 1 [running]:",
		`{"component":"dns","level":"warning","msg":"slow","time":"2026-11-21T11:00:01.000Z"}`,
	}
	for _, c := range []struct {
		name   string
		filter Filter
		want   []int
	}{
		{"all", Filter{}, []int{0, 1, 2, 3, 4, 5}},
		{"since", Filter{Since: at("2026-11-21T10:30:00.000Z")}, []int{2, 3, 4, 5}},
		{"component", Filter{Component: "kubelet"}, []int{3, 4}},
		{"level", Filter{Level: logrus.WarnLevel}, []int{3, 4, 5}},
		{"both", Filter{Component: "etcd", Since: at("2026-11-21T10:30:00.000Z")}, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			for i, line := range all {
				if c.filter.Wants(line) {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := &File{Path: path, Max: 40, Keep: 3}
	got := make(chan string, 100)
	done := make(chan error, 1)
	go func() {
		done <- Follow(ctx, path, &Filter{}, func(s string) error {
			got <- s
			return nil
		}, func() error { return nil })
	}()
	for i := range 20 { // a file holds three
		if _, err := f.Write([]byte(fmt.Sprintf("line number %d\n", i))); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-got:
			if want := fmt.Sprintf("line number %d", i); s != want {
				t.Fatalf("%q, want %q", s, want)
			}
		case <-ctx.Done():
			t.Fatalf("line %d did not come", i)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := Follow(t.Context(), filepath.Join(t.TempDir(), "none", "x"), &Filter{}, nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
