package localpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mountTable is the file in which the kernel lists mounts.
const mountTable = "/proc/self/mountinfo"

// MountPoints returns all mount points.
func MountPoints() ([]string, error) {
	data, err := os.ReadFile(mountTable)
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			out = append(out, unescape.Replace(fields[4]))
		}
	}
	return out, nil
}

// MountOf returns the mount point of the file system that a directory is on. The directory need not exist yet.
func MountOf(dir string) (string, error) {
	mounts, err := MountPoints()
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != "/" {
		dir = filepath.Dir(dir)
		real, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("looking for the file system: %w", err)
	}
	longest := "/"
	for _, mount := range mounts {
		if len(mount) > len(longest) && (mount == real || strings.HasPrefix(real, mount+"/")) {
			longest = mount
		}
	}
	return longest, nil
}
