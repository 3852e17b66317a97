package manifests

import (
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// file is a manifest and its state.
type file struct {
	id      fileID
	hash    string // of its content
	objects []object
	status  state.Manifest
	seen    time.Time // when this content was read first
	unread  bool      // its content is not known

	due      time.Time // zero: nothing is to be done
	tries    int
	noKind   bool    // the last try failed because a kind is unknown
	applied  []entry // by the try under way
	failures []error // of the try under way
}

// newFile parses a manifest. A broken one gets the state failed.
func newFile(id fileID, data []byte) *file {
	f := &file{id: id, hash: hashOf(data), due: time.Unix(0, 0)} // at once
	f.status = state.Manifest{File: id.name, Embedded: id.embedded(), State: state.ManifestPending}
	objects, err := parse(data)
	if err != nil {
		return f.broken(err)
	}
	f.objects, f.status.Objects = objects, len(objects)
	return f
}

func (f *file) broken(err error) *file {
	f.due, f.unread = time.Time{}, true
	f.status.State, f.status.Error = state.ManifestFailed, oneLine(err)
	return f
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Pauses between tries of a file that may succeed later.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
)

// finish updates the state after a try.
func (f *file) finish(now time.Time) {
	err := errors.Join(f.failures...)
	f.noKind = slices.ContainsFunc(f.failures, meta.IsNoMatchError)
	if err == nil {
		f.due, f.tries = time.Time{}, 0
		f.status.State, f.status.Error, f.status.Applied = state.ManifestApplied, "", now
		return
	}
	f.status.Error = oneLine(err)
	f.status.State = state.ManifestPending
	if slices.ContainsFunc(f.failures, func(err error) bool { return !passing(err) }) {
		f.status.State = state.ManifestFailed
	}
	if !slices.ContainsFunc(f.failures, func(err error) bool { return !hopeless(err) }) {
		f.due = time.Time{}
		return
	}
	f.due = now.Add(min(firstPause<<min(f.tries, 20), lastPause))
	f.tries++
}
