package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Previous sets o to return to the previous version, which the last upgrade has kept.
func Previous(t Target, o *Options) error {
	p := place(t.Dirs.Data)
	o.File, o.Back, o.Downgrade = p.previous(binaryName), true, true
	o.Name = "the previous version"
	if _, err := os.Stat(o.File); err != nil {
		why := "there has been no upgrade yet"
		if s, ok, _ := Read(t.Dirs.Data); ok && s.Phase == RolledBack {
			why = "the last upgrade has been rolled back already"
		}
		return exitcode.Usagef("there is no previous version: %s", why)
	}
	if o.OldData && !paths.Exists(p.previous(dataName)) {
		return exitcode.Usagef("there is no datastore of the previous version: it is kept only if this server is the only one with the cluster's data")
	}
	return nil
}

// sameMinor fails for a rollback to another Kubernetes minor version, which may not read what the newer one has written.
func sameMinor(from, to string) error {
	a, err := parseVersion(from)
	if err != nil {
		return err
	}
	b, err := parseVersion(to)
	if err != nil {
		return err
	}
	if a.major == b.major && a.minor == b.minor {
		return nil
	}
	return exitcode.Usagef("%s may not understand what Kubernetes %d.%d has written to the cluster's data since the upgrade: "+
		"with --datastore the data from before the upgrade is restored too, and what was written since is lost", to, a.major, a.minor)
}

// forOlder removes what an older version may not know, and would leave as it is: links of the control plane's user in its directories, the gateway's
// processes with their ports, and nft tables, while pods and nodes come and go.
func (e *engine) forOlder(d paths.Dirs) error {
	e.at("give files to root")
	_ = controlplaneuser.ToRoot(d) // it has done what it could, and nothing keeps the older version from starting
	e.at("end gateway")
	ended := gateway.Dir(d.Gateway()).End()
	e.at("remove tables")
	return errors.Join(ended, e.removeTables(footprint.WireTable, footprint.PortTable))
}

// UnpackAhead unpacks this executable's payload into a data directory that another version uses.
func UnpackAhead(data string) error {
	if !filepath.IsAbs(data) {
		return fmt.Errorf("%s is not an absolute path", data)
	}
	if _, err := os.Stat(data); err != nil {
		return &fs.PathError{Op: "looking at the data directory", Path: data, Err: err}
	}
	return payload.Prefetch(context.Background(), paths.Dirs{Data: data}, nil)
}
