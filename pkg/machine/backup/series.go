package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Series is what the names of backups of one kind, that one server makes, have in common: NAME-NODE-, before the time.
type Series struct{ Name, Node, Cluster string }

const timeFormat = "20060102T150405Z"

// At returns the name of the backup that is made at a time.
func (s Series) At(t time.Time) string {
	return s.Name + "-" + s.Node + "-" + t.UTC().Format(timeFormat)
}

// has reports whether a name is one of the series. Those of node-b are none of node's.
func (s Series) has(name string) bool {
	rest, ok := strings.CutPrefix(name, s.Name+"-"+s.Node+"-")
	_, err := time.Parse(timeFormat, rest)
	return ok && err == nil
}

// Has reports whether a backup is one of the series, made in this cluster.
func (s Series) Has(b Summary) bool {
	return s.has(b.Name) && b.Node == s.Node && b.Cluster == s.Cluster
}

// RemoveLeft removes what killed saves of the series have left in a directory, while Lock keeps others from saving: unfinished backups, and notes of
// none.
func (s Series) RemoveLeft(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		unfinished, hidden := strings.CutPrefix(e.Name(), ".") // as package atomicfile calls them, with a number at the end
		name, _, packed := strings.Cut(unfinished, plainSuffix)
		noted, isNote := strings.CutSuffix(e.Name(), noteSuffix)
		_, missing := os.Lstat(filepath.Join(dir, noted))
		if s.has(name) && packed && (hidden || isNote && errors.Is(missing, fs.ErrNotExist)) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Surplus returns those backups of the series that are not worth keeping, the oldest first: tried ones beyond the newest keep, of which 0 keeps all, and
// such as failed or were never tried if a later one is good.
func Surplus[B any](s Series, all []B, about func(B) Summary, keep int) (surplus []B) {
	good := 0
	for _, b := range slices.Backward(all) {
		one := about(b)
		switch {
		case !s.Has(one):
			continue
		case !one.Tried.IsZero():
			good++
			if keep == 0 || good <= keep {
				continue
			}
		case good == 0:
			continue
		}
		surplus = append(surplus, b)
	}
	slices.Reverse(surplus)
	return surplus
}

// About is for Surplus.
func (c Copy) About() Summary { return c.Summary }
