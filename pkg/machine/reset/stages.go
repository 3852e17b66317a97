package reset

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// stage finds the things of one kind that exist now.
type stage struct {
	what string
	find func(context.Context, *machine) ([]Item, error)
	// data says that the things outlive a reboot.
	data bool
}

// stages is the order of removal: users of a thing are removed before the thing.
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

// machine is what the stages read and share.
type machine struct {
	dirs   paths.Dirs
	config config.Config
	cache  string
	proc   string
	root   string // put in front of paths outside dirs; empty except in tests
	noted  []ledger.Entry
	seen   evidence
	failed bool // something could not be removed, so that the ledger must stay
	abort  bool // coracle itself could not be stopped
	// planned has the names of what earlier stages of a plan found and would have removed.
	planned map[string]bool
}

// entries returns the entries of one kind.
func (m *machine) entries(kind ledger.Kind) []ledger.Entry {
	return slices.DeleteFunc(slices.Clone(m.noted), func(e ledger.Entry) bool { return e.Kind != kind })
}

// made reports whether the ledger has the thing.
func (m *machine) made(kind ledger.Kind, name string) bool {
	return slices.ContainsFunc(m.noted, func(e ledger.Entry) bool { return e.Kind == kind && e.Name == name })
}

// host returns where a path outside coracle's directories is.
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
