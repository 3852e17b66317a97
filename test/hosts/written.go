package hosts

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Written lists the files that were made, changed or removed on the host's root file system since it was made, one
// per line. What others do on this machine meanwhile is not in it, nor is what is below mounts of the host's own.
func (h *Host) Written() string {
	h.t.Helper()
	upper := h.vm.Upper()
	var files []string
	h.must(filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, upper))
		}
		return err
	}))
	slices.Sort(files)
	return strings.Join(files, "\n") + "\n"
}
