package reset

import (
	"context"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// stage finds the things of one sort that are there now.
type stage struct {
	what string
	find func(context.Context, *machine) ([]Item, error)
	// data says that what it finds outlives a reboot.
	data bool
}

// stages is the order of removal: nothing goes before what uses it.
var stages = []stage{
	{"processes", findProcesses, false},
	{"mounts", findMounts, false},
	{"network interfaces", findLinks, false},
	{"network namespaces", findNetNS, false},
	{"nft tables", findTables, false},
	{"nft rules", findRules, false},
	{"routes", findRoutes, false},
	{"cgroups", findCgroups, false},
	{"kernel settings", findSettings, false},
	{"files", findFiles, true},
	{"run directory", findRun, false},
	{"local volumes", findVolumes, true},
	{"directories", findDirs, true},
}

// machine is what the stages look at.
type machine struct {
	dirs   paths.Dirs
	config config.Config
	cache  string
	proc   string
	root   string // in front of paths outside dirs; empty but in tests
	noted  []ledger.Entry
	seen   evidence
	failed bool // something could not be removed: the ledger has to stay
	abort  bool // coracle itself could not be stopped
	// planned are the names of what earlier stages of a plan have found, and would have removed.
	planned map[string]bool
}

// entries returns the ledger's entries of one kind.
func (m *machine) entries(kind ledger.Kind) (out []ledger.Entry) {
	for _, e := range m.noted {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// made reports whether the ledger says that coracle made this.
func (m *machine) made(kind ledger.Kind, name string) bool {
	for _, e := range m.noted {
		if e.Kind == kind && e.Name == name {
			return true
		}
	}
	return false
}

// host is a path outside coracle's directories.
func (m *machine) host(path string) string { return filepath.Join(m.root, path) }

// Volumes is the kind of the item for the data of pods. It is separate from the directory that contains it, so that the plan
// names it before it is lost.
const Volumes = "local volumes"

// findVolumes lists the local volumes in the data directory. Volumes in other directories belong to the user.
func findVolumes(_ context.Context, m *machine) ([]Item, error) {
	dir := m.dirs.LocalVolumes()
	summary := localpath.Summary(dir)
	if summary == "" {
		return nil, nil
	}
	return []Item{{Kind: Volumes, Name: dir, Detail: summary, remove: func(context.Context) error { return m.removeOwn(dir) }}}, nil
}
