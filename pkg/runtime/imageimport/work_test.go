package imageimport

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// store stands for containerd.
type store struct {
	fail    error
	tried   []time.Duration // since began
	began   time.Time
	missing bool // what was imported is gone
}

func (s *store) bring(_ context.Context, file string) ([]archives.Image, error) {
	s.tried = append(s.tried, time.Since(s.began))
	if s.fail != nil {
		return nil, s.fail
	}
	return []archives.Image{{Name: filepath.Base(file)}}, nil
}

func (s *store) present(context.Context, []archives.Image) bool { return !s.missing }

// TestAFailureIsTriedAgain runs what follow does when time has passed.
func TestAFailureIsTriedAgain(t *testing.T) {
	const m = time.Minute
	for name, c := range map[string]struct {
		file string
		want []time.Duration
	}{
		"an archive":                {"user/a.tar", []time.Duration{0, m / 2, 3 * m / 2, 7 * m / 2, 15 * m / 2, 31 * m / 2, 63 * m / 2, 127 * m / 2, 247 * m / 2, 367 * m / 2}},
		"one of the payload":        {"system/a.tar", []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second, 50 * time.Second, m}},
		"a list":                    {"user/a.txt", []time.Duration{0}},
		"a link that leads nowhere": {"user/link.tar", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := &store{fail: errors.New("no space left on device"), began: time.Now()}
				var reported []Archive
				im := Images{System: filepath.Join(dir, "system"), User: filepath.Join(dir, "user"), Index: filepath.Join(dir, "index")}
				im.Report = func(all []Archive) { reported = all }
				w := newWork(im, s.bring, s.present)
				file := filepath.Join(dir, c.file)
				if c.want == nil {
					os.MkdirAll(im.User, 0o755)
					os.Symlink("nowhere", file)
				} else {
					write(t, file, "x")
				}
				for end := time.Now().Add(slices.Max(append(c.want, m))); !time.Now().After(end); time.Sleep(lookInterval) {
					w.try(t.Context(), file)
				}
				if !slices.Equal(s.tried, c.want) {
					t.Errorf("tried after %v, want %v", s.tried, c.want)
				}
				if len(reported) != 1 || reported[0].Error == "" {
					t.Errorf("reported %+v", reported)
				}
				s.fail = nil
				os.Remove(file)
				write(t, file, "changed")
				w.try(t.Context(), file)
				if len(reported) != 1 || reported[0].Error != "" {
					t.Errorf("reported %+v", reported)
				}
				if len(readIndex(im.Index)) != 1 {
					t.Error("it is not in the index")
				}
				os.Remove(file)
				w.forgetGone()
				if len(reported) != 0 {
					t.Errorf("a file that is gone is reported: %+v", reported)
				}
			})
		})
	}
}

// TestAnImageOfThePayloadComesBack even after a try that failed.
func TestAnImageOfThePayloadComesBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &store{began: time.Now()}
		reports := 0
		w := newWork(Images{System: dir, Index: filepath.Join(dir, ".index"), Report: func([]Archive) { reports++ }}, s.bring, s.present)
		write(t, filepath.Join(dir, "pause.tar"), "x")
		for range 5 {
			w.tryAll(t.Context(), list(dir), false)
		}
		if len(s.tried) != 1 || reports != 1 {
			t.Errorf("imported %d times and reported %d times", len(s.tried), reports)
		}
		s.missing, s.fail = true, errors.New("containerd is busy")
		w.tryAll(t.Context(), list(dir), false)
		s.fail = nil
		time.Sleep(systemPause)
		w.tryAll(t.Context(), list(dir), false)
		if len(s.tried) != 3 {
			t.Errorf("tried %d times", len(s.tried))
		}
	})
}

// TestEmptyList is read once.
func TestEmptyList(t *testing.T) {
	dir, tried := t.TempDir(), 0
	bring := func(context.Context, string) ([]archives.Image, error) { tried++; return nil, nil }
	w := newWork(Images{User: dir, Index: filepath.Join(dir, ".index")}, bring, (&store{missing: true}).present)
	write(t, filepath.Join(dir, "a.txt"), "# nothing yet\n")
	for range 3 {
		w.tryAll(t.Context(), list(dir), true)
	}
	if tried != 1 {
		t.Errorf("read %d times", tried)
	}
}

// TestFollow has a list whose registry never answers, and a directory that is made anew.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	brought := make(chan string, 10)
	bring := func(ctx context.Context, file string) ([]archives.Image, error) {
		brought <- filepath.Base(file)
		if isList(file) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []archives.Image{{Name: file}}, nil
	}
	w := newWork(Images{User: dir, Index: filepath.Join(t.TempDir(), "index")}, bring, (&store{}).present)
	write(t, filepath.Join(dir, "a.txt"), "nginx:1\n")
	write(t, filepath.Join(dir, "b.tar"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	const interval = 50 * time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- w.follow(ctx, interval) }()
	want := func(file string) {
		t.Helper()
		select {
		case got := <-brought:
			if got != file {
				t.Errorf("%s is imported, want %s", got, file)
			}
		case <-time.After(time.Minute): // which is only for machines that have much to do
			t.Errorf("%s is not imported", file)
		}
	}
	want("b.tar")
	want("a.txt")
	write(t, filepath.Join(dir, "c.tar"), "x")
	want("c.tar")
	os.RemoveAll(dir)
	time.Sleep(interval / 2)
	write(t, filepath.Join(dir, "d.tar"), "x")
	want("d.tar")
	os.Rename(dir, dir+".away")
	time.Sleep(interval / 2)
	write(t, filepath.Join(dir, "e.tar"), "x")
	want("e.tar")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDamageIsMended: content that containerd could not read is imported again, and what cannot be mended does not end the node.
func TestDamageIsMended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pause.tar")
	write(t, file, "x")
	s := &store{}
	w := newWork(Images{System: filepath.Dir(file), Index: filepath.Join(t.TempDir(), "index")}, s.bring, s.present)
	for _, c := range []struct {
		content, layers bool
		err             error
		imports         int
		compared        int // images
	}{{imports: 1}, {imports: 1, compared: 1}, {content: true, imports: 2, compared: 1}, {layers: true, imports: 2, compared: 1}, {err: errors.New("EIO"), imports: 2, compared: 1}} {
		compared := 0
		err := w.intact(t.Context(), file, func(context.Context, string) (bool, error) { return c.content, c.err },
			func(_ context.Context, all []archives.Image) (bool, error) {
				compared += len(all)
				return c.layers, c.err
			})
		if err != nil || len(s.tried) != c.imports || compared != c.compared || w.unknown != (c.err != nil) {
			t.Errorf("%+v: imported %d times, %d images compared, %v", c, len(s.tried), compared, err)
		}
	}
}
