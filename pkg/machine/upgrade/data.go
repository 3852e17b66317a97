package upgrade

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// CheckData returns why a server of a version must not go on with the data in d, whose executable was replaced by hand; nil if it may. What
// Upgrade does is allowed, because it removes the record before a step back, and a restored backup has none.
func CheckData(d paths.Dirs, version string) error {
	text, err := os.ReadFile(d.DataVersion())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading which version has used the data: %w", err)
	}
	last := strings.TrimSpace(string(text))
	from, err := parseVersion(last)
	to, own := parseVersion(version)
	if err != nil || own != nil {
		return nil // it was damaged, or this is a build without a version
	}
	if to.major == from.major && to.minor < from.minor {
		return exitcode.Usagef("%s has used the data in %s, and %s may not understand what Kubernetes %d.%d has written: start the newer version, "+
			"and go back with coracle rollback --datastore, or restore a backup from before", last, filepath.Dir(d.DataVersion()), version, from.major, from.minor)
	}
	return allowed(last, version, true, true)
}

// RecordData records that a version is about to use the data.
func RecordData(d paths.Dirs, version string) error {
	_, err := atomicfile.WriteIfChanged(d.DataVersion(), []byte(version+"\n"), 0o600)
	return err
}

// ForgetData removes the record, for which CheckData would refuse an older version.
func ForgetData(d paths.Dirs) error {
	err := os.Remove(d.DataVersion())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(d.DataVersion()))
	}
	if err != nil {
		return fmt.Errorf("removing the record of the version that has used the data: %w", err)
	}
	return nil
}
