package upgrade

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// Previous makes o the way back to the version before, as it was kept by the last upgrade.
func Previous(t Target, o *Options) error {
	p := place(t.Dirs.Data)
	o.File, o.Back, o.Downgrade = p.previous(binaryName), true, true
	o.Name = "the version before"
	if _, err := os.Stat(o.File); err != nil {
		why := "nothing has been upgraded yet"
		if s, ok, _ := Read(t.Dirs.Data); ok && s.Phase == RolledBack {
			why = "the last upgrade was taken back already"
		}
		return exitcode.Usagef("there is no version before to go back to: %s", why)
	}
	if o.OldData && !paths.Exists(p.previous(dataName)) {
		return exitcode.Usagef("there is no datastore of the version before: it is kept only where this server alone has the cluster's data")
	}
	return nil
}

// sameMinor refuses to go back to another Kubernetes minor version with data that the newer one has written.
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
		"give --datastore to go back to the data of before the upgrade too, and lose what was written since", to, a.major, a.minor)
}

// UnpackAhead unpacks this executable's payload for a data directory whose coracle is of another version.
func UnpackAhead(data string) error {
	if !filepath.IsAbs(data) {
		return fmt.Errorf("%s is no absolute path", data)
	}
	if _, err := os.Stat(data); err != nil {
		return &fs.PathError{Op: "looking at the data directory", Path: data, Err: err}
	}
	return payload.Prefetch(context.Background(), paths.Dirs{Data: data}, nil)
}
