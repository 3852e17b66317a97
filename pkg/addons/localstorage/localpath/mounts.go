package localpath

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// MountPoints returns all mount points.
func MountPoints() (points []string, err error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points, nil
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
