package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

func dataDir(_ context.Context, m *Machine) []Verdict {
	return judgeDir("data directory", m.Config.Dirs.Data, "--data-dir", true)
}

func runDir(_ context.Context, m *Machine) []Verdict {
	return judgeDir("run directory", m.Config.Dirs.Run, "--run-dir", false)
}

// judgeDir checks that files can be written in a directory, which need not exist, and with exec that programs can be
// executed there. It changes nothing. flag is the flag that chooses another directory.
func judgeDir(what, dir, flag string, exec bool) []Verdict {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return Failf("remove the file, or choose another with "+flag, "the %s %s is a file", what, dir)
	} else if errors.Is(err, unix.ENOTDIR) {
		return Failf("", "making the %s: %v, or choose another with %s", what, reason(dir, err), flag)
	}
	there := nearest(dir)
	if err := mayWriteIn(there); err != nil {
		return Failf("", "writing to the %s: %v, or choose another with %s", what, reason(dir, err), flag)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(there, &fs); err != nil {
		return Failf("", "looking at the %s %s: %v", what, there, err)
	}
	if exec && fs.Flags&unix.ST_NOEXEC != 0 {
		return Failf("mount it with exec, or choose another --data-dir",
			"the data directory %s is mounted noexec, and coracle's programs are unpacked into it", there)
	}
	if there != dir {
		dir += " does not exist yet and will be made in " + there
	}
	return Okf("%s", dir)
}

// mayWriteIn makes a file in a directory.
func mayWriteIn(dir string) error {
	f, err := nameless(dir)
	if errors.Is(err, unix.ENOSPC) { // diskSpace reports a full disk
		return unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// reason explains an error about a directory, and names the directory instead of a temporary file.
func reason(dir string, err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s is on a read-only file system: mount it read-write", dir)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s has no space left: make room", dir)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s, or a part of its path, is a file: remove that", dir)
	}
	return fmt.Errorf("%w: mend that", err)
}

const mib = 1 << 20

// Free space that the data directory needs: for the datastore, and before the first start for the payload too.
const (
	spaceToRun    = 128 * mib
	spaceToUnpack = 512 * mib
	inodesToRun   = 2000
)

func diskSpace(_ context.Context, m *Machine) []Verdict {
	dir := nearest(m.Config.Dirs.Data)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Failf("", "looking at %s: %v", dir, err)
	}
	lack := judgeFree(dir, fs, payload.Unpacks() && !paths.Exists(m.Config.Dirs.Tool("coracle-core")))
	if m.starting && paths.Exists(m.Config.Dirs.NodePKI()) {
		// The node has run before. The kubelet can remove images and evict pods, and users can delete volumes, only if it starts.
		for i := range lack {
			lack[i].Result = Warn
		}
	}
	if lack != nil || m.starting {
		return lack
	}
	return judgeSpace(fs)
}

// Disk returns what keeps coracle from writing to its data directory, or soon will, a sentence for each; nothing if there is none.
func Disk(d paths.Dirs) (wrong []string) {
	if !paths.Exists(d.Data) {
		return nil
	}
	if err := mayWriteIn(d.Data); err != nil {
		return []string{fmt.Sprintf("writing to the data directory fails: %v", reason(d.Data, err))}
	}
	var fs unix.Statfs_t
	if unix.Statfs(d.Data, &fs) != nil {
		return nil
	}
	for _, v := range judgeFree(d.Data, fs, false) {
		wrong = append(wrong, v.Error())
	}
	return wrong
}

// judgeFree compares what is free in a file system with what the data directory dir needs. It returns nil if that is enough.
func judgeFree(dir string, fs unix.Statfs_t, unpack bool) []Verdict {
	need := uint64(spaceToRun)
	if unpack {
		need = spaceToUnpack
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return Failf("make room, or choose another --data-dir",
			"the data directory %s has %d MiB of space left and needs %d MiB", dir, free/mib, need/mib)
	}
	if fs.Files > 0 && fs.Ffree < inodesToRun {
		return Failf("remove files, or choose another --data-dir",
			"the file system of the data directory %s has %d inodes free and needs %d", dir, fs.Ffree, inodesToRun)
	}
	return nil
}

// secrets returns the directories that hold keys; secretNames are the endings of the names of files with keys.
func secrets(d paths.Dirs) []string {
	return []string{d.PKI(), d.NodePKI(), filepath.Dir(d.ServerConfig("x")), filepath.Dir(d.NodeConfig("x"))}
}

var secretNames = []string{".key", ".kubeconfig", ".conf", ".pem"}

// secretFiles finds keys that other users of this machine could have read. It does not correct their modes silently, because
// the administrator has to consider whether a key was copied.
func secretFiles(_ context.Context, m *Machine) (found []Verdict) {
	for _, dir := range secrets(m.Config.Dirs) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || !slices.Contains(secretNames, filepath.Ext(path)) {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if mode := info.Mode().Perm(); mode&0o077 != 0 {
				found = append(found, Failf("consider whether it was copied, then: chmod 600 "+path,
					"%s holds a secret and other users can read it (mode %#o)", path, mode)...)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			found = append(found, Failf("", "looking at the modes of secret files: %v", err)...)
		}
	}
	return Else(found, Okf("only root can read them"))
}

// registriesFile finds mistakes in registries.yaml, with line and key, and checks that other users cannot read passwords in
// it. The file may be missing.
func registriesFile(_ context.Context, m *Machine) (found []Verdict) {
	path := m.Config.Dirs.Registries()
	file, err := registries.Load(path)
	if err != nil {
		for _, one := range split(err) {
			found = append(found, Failf("", "%v", one)...)
		}
		return found
	}
	for _, text := range file.Warnings {
		found = append(found, Warnf("", "%s", text)...)
	}
	if info, err := os.Stat(path); err == nil && file.HasSecrets() && info.Mode().Perm()&0o077 != 0 {
		found = append(found, Warnf("consider whether it was copied, then: chmod 600 "+path,
			"%s holds a secret and other users can read it (mode %#o)", path, info.Mode().Perm())...)
	}
	return Else(found, Okf("%s is valid, or does not exist", path))
}

// split returns the errors that were joined into one.
func split(err error) []error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, split(one)...)
	}
	return all
}
