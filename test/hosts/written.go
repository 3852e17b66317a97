package hosts

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Written lists the files that the host has created, changed or removed on its root file system since New, one a line.
// Files on the host's own mounts are not listed.
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
