package reset

import (
	"context"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// Volumes is the kind of the item for the data of pods. It is apart from the directory that it is in, so that nobody
// loses it without having been told.
const Volumes = "local volumes"

// findVolumes lists the local volumes in the data directory. Those in other places are the user's, like what is in them.
func findVolumes(_ context.Context, m *machine) ([]Item, error) {
	dir := m.dirs.LocalVolumes()
	summary := localpath.Summary(dir)
	if summary == "" {
		return nil, nil
	}
	return []Item{{Kind: Volumes, Name: dir, Detail: summary, remove: func(context.Context) error { return m.removeOwn(dir) }}}, nil
}
