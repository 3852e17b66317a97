package manifests

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// identitySet is a set of objects.
type identitySet map[identity]bool

func identities(entries []entry) identitySet {
	s := identitySet{}
	for _, e := range entries {
		s[e.identity()] = true
	}
	return s
}

func (s identitySet) has(e entry) bool { return s[e.identity()] }

// wanted are the objects that must not be deleted: those of all files, and the recorded ones of files that are skipped or
// whose content is not known.
func (d *deployer) wanted() identitySet {
	s := identitySet{}
	for _, f := range d.files {
		for _, o := range f.objects {
			s[o.entry().identity()] = true
		}
		if f.unread || f.status.State == state.ManifestSkipped {
			maps.Copy(s, identities(d.inventory[f.id].objects))
		}
	}
	return s
}

// due is when the next step is due, at the latest in an hour.
func (d *deployer) due() time.Time {
	next := d.earliest(func(*file) bool { return true })
	if !d.scanned.IsZero() && !d.quietSinceStart {
		if again := d.scanned.Add(settleFiles); again.Before(next) {
			return again
		}
	}
	return next
}

// unfinished reports whether a start waits for the file. It does not if the file is only applied again.
func unfinished(f *file) bool {
	return f.id.embedded() && f.status.State != state.ManifestApplied && f.status.State != state.ManifestSkipped
}

// earliest is when the next of the selected files is due, at the latest in an hour.
func (d *deployer) earliest(some func(*file) bool) time.Time {
	next := d.now().Add(time.Hour)
	for _, f := range d.files {
		if !f.due.IsZero() && f.due.Before(next) && some(f) {
			next = f.due
		}
	}
	return next
}

// wake makes every file due that waits for a retry.
func (d *deployer) wake() {
	for _, f := range d.files {
		if !f.due.IsZero() {
			f.due, f.tries = d.now(), 0
		}
	}
}

func (d *deployer) waitsForKind() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(d.files)), func(f *file) bool { return f.noKind && !f.due.IsZero() })
}

// firstProblem is the first error of the embedded files; "" if there is none.
func (d *deployer) firstProblem() string {
	for _, s := range d.statuses() {
		if s.Embedded && s.State != state.ManifestApplied && s.State != state.ManifestSkipped {
			return s.File + ": " + s.Error
		}
	}
	return ""
}

// statuses are of all files, coracle's own first.
func (d *deployer) statuses() []state.Manifest {
	var out []state.Manifest
	for _, f := range d.files {
		out = append(out, f.status)
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(out, func(a, b state.Manifest) int {
		return cmp.Or(rank[a.Embedded]-rank[b.Embedded], strings.Compare(a.File, b.File))
	})
	return out
}

// report tells if there is anything new.
func (d *deployer) report() {
	now := d.statuses()
	if d.Report == nil || slices.Equal(now, d.reported) {
		return
	}
	d.reported = now
	d.Report(now)
}

// logOutcome writes a line when a file's state is another than before.
func (d *deployer) logOutcome(f *file, before state.Manifest) {
	log := d.log.WithFields(logrus.Fields{"file": f.id.name, "objects": f.status.Objects})
	switch {
	case f.status.State == state.ManifestApplied && before.State != state.ManifestApplied && f.id.embedded():
		log.Debug("applied")
	case f.status.State == state.ManifestApplied && before.State != state.ManifestApplied:
		log.Info("applied")
	case f.status.State != state.ManifestApplied && f.status.Error != before.Error:
		log.Warn("not applied: " + f.status.Error)
	}
}
