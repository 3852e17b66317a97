// Package atomicfile writes files so that a reader, and a machine that lost power, sees the old content or the
// new one and never a part.
package atomicfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Write puts data at path with the given mode, which the file has from the start. Missing parent directories are made with
// mode 0755 if everyone may read the file, and 0700 otherwise. The data is on disk when Write returns. On a full disk it succeeds
// if the file has this data and mode already, so that coracle can start there.
func Write(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, true)
}

// WriteVolatile is Write without the sync, for files that need not outlive a crash of the machine.
func WriteVolatile(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, false)
}

// WriteIfChanged is Write for a path that may hold data already: then nothing is written. It reports whether it wrote.
func WriteIfChanged(path string, data []byte, mode fs.FileMode) (bool, error) {
	if holds(path, data, mode) {
		return false, nil
	}
	return true, Write(path, data, mode)
}

// WriteJSON writes v as a line of JSON with a checksum, unless the file holds it already.
func WriteJSON(path string, v any, mode fs.FileMode) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	_, err = WriteIfChanged(path, SumJSON(append(data, '\n')), mode)
	return err
}

// ReadJSON reads a file of JSON into v, and compares its checksum if it has one. It reports whether the file exists; a missing file is
// no error.
func ReadJSON(path string, v any) (found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	err = CheckJSON(data)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return true, fmt.Errorf("reading %s: %w", path, err)
	}
	return true, nil
}

// holds reports whether a file has the data and the mode.
func holds(path string, data []byte, mode fs.FileMode) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != mode || info.Size() != int64(len(data)) {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, data)
}

func write(path string, data []byte, mode fs.FileMode, sync bool) error {
	dirMode := fs.FileMode(0o700)
	if mode&0o004 != 0 {
		dirMode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return fmt.Errorf("making directory for %s: %w", path, err)
	}
	err := replace(path, mode, sync, func(f *os.File) error {
		if _, err := f.Write(data); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		return nil
	})
	if errors.Is(err, syscall.ENOSPC) && holds(path, data, mode) {
		return nil
	}
	return err
}

// WriteWith is Write for data that fill writes to a temporary file beside path, whose directory must exist. An error of fill
// is returned as it is.
func WriteWith(path string, mode fs.FileMode, fill func(*os.File) error) error {
	return replace(path, mode, true, fill)
}

// replace has fill write a temporary file and renames it to path.
func replace(path string, mode fs.FileMode, sync bool, fill func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	err = f.Chmod(mode)
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil && sync {
		err = SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
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
