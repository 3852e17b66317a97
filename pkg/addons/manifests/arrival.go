package manifests

import (
	"io/fs"
	"path/filepath"
	"time"
)

// exchanged is how long a directory that came while coracle runs must not change before the files that it lacks are taken
// for removed: somebody is putting the former one back, its identity first.
const exchanged = time.Minute

// arrival is how the user's directory comes to be complete. What is missing may still be on its way into it.
type arrival struct {
	patience time.Duration // how long it must not change; complete if that is longer
	since    time.Time     // it has not changed
	newest   time.Time     // what was seen of its times
	again    time.Time     // when it is to be looked at; zero: now
	over     bool
	told     bool // that there are objects to be removed afterwards
}

// wait is how long it is too early to believe that a file that is missing was removed.
func (a *arrival) wait(dir string) time.Duration {
	if a.over {
		return 0
	}
	now, newest := time.Now(), newest(dir)
	switch {
	case a.since.IsZero() && newest.Before(now):
		a.since = newest
	case a.since.IsZero() || !newest.Equal(a.newest):
		a.since = now
	}
	a.newest = newest
	wait := max(a.patience, complete) - now.Sub(a.since)
	a.again, a.over = now.Add(wait), wait <= 0
	return max(wait, 0)
}

// newest is when anything in a directory changed last, also what is hidden: copying programs write there.
func newest(dir string) (t time.Time) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.ModTime().After(t) {
			t = info.ModTime()
		}
		if entry.IsDir() && ignored(entry.Name()) && path != dir {
			return fs.SkipDir
		}
		return nil
	})
	return t
}
