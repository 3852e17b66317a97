// Package atomicfile writes files so that a reader, and a machine that lost power, sees the old content or the
// new one and never a part.
package atomicfile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write puts data at path with the given mode, which the file has from the start. Missing parent directories
// are made with mode 0700. The data is on disk when Write returns.
func Write(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, true)
}

// WriteVolatile is Write without the sync, for files that need not outlive a crash of the machine.
func WriteVolatile(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, false)
}

// WriteIfChanged is Write for a path that may hold data already: then nothing is written. It reports whether it wrote.
func WriteIfChanged(path string, data []byte, mode fs.FileMode) (bool, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm() == mode && info.Size() == int64(len(data)) {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return false, nil
		}
	}
	return true, Write(path, data, mode)
}

func write(path string, data []byte, mode fs.FileMode, sync bool) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making directory for %s: %w", path, err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if sync {
		return SyncDir(dir)
	}
	return nil
}

// Unfinished lists the temporary files beside path that a Write which was killed has left.
func Unfinished(path string) (out []string) {
	files, _ := os.ReadDir(filepath.Dir(path))
	for _, f := range files {
		number, ok := strings.CutPrefix(f.Name(), "."+filepath.Base(path)+".")
		if ok && number != "" && strings.Trim(number, "0123456789") == "" {
			out = append(out, filepath.Join(filepath.Dir(path), f.Name()))
		}
	}
	return out
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
