package localpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mountTable is where the kernel lists what is mounted.
const mountTable = "/proc/self/mountinfo"

// MountPoints are the directories on which something is mounted.
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

// MountOf returns where the file system is mounted that a directory is on, or would be on if it were made.
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
