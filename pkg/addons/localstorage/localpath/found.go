package localpath

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Found is the folder of a volume on the disk, whether or not there is a PV.
type Found struct {
	Path string
	PV   string
}

// depth is how deep a pathPattern's folders are looked for.
const depth = 6

// pvName matches what the library of provisioners calls a PV.
const pvName = `pvc-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// named matches folders with the name that they get without a pathPattern.
var named = regexp.MustCompile(`^(` + pvName + `)_`)

// Find lists the folders of volumes in a directory. What cannot be read is left out.
func Find(base string) (out []Found) {
	_ = fs.WalkDir(os.DirFS(base), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || rel == "." {
			return nil // left out
		}
		if strings.HasPrefix(d.Name(), deleted) {
			return fs.SkipDir
		}
		path := filepath.Join(base, rel)
		if pv, ok := ownerOf(path, d.Name()); ok {
			out = append(out, Found{Path: path, PV: pv})
			return fs.SkipDir
		}
		if strings.Count(rel, "/") >= depth {
			return fs.SkipDir
		}
		return nil
	})
	return out
}

func ownerOf(path, name string) (pv string, ok bool) {
	var buf [256]byte
	if n, err := unix.Lgetxattr(path, Mark, buf[:]); err == nil && n > 0 {
		return string(buf[:n]), true
	}
	if m := named.FindStringSubmatch(name); m != nil {
		return m[1], true
	}
	return "", false
}

// Size is how many bytes the files below a directory take on the disk. Nothing that is mounted in it is counted, and
// what is gone while it counts is not there.
func Size(dir string) (bytes int64) {
	device := uint64(0)
	if info, err := os.Lstat(dir); err == nil {
		device = deviceOf(info)
	}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone
		}
		if deviceOf(info) != device {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		bytes += blocksOf(info)
		return nil
	})
	return bytes
}

// Summary says how many volumes are in a directory and how much is in them: "2 volumes with 1.5 GiB". It is "" if there
// are none.
func Summary(base string) string {
	found := Find(base)
	if len(found) == 0 {
		return ""
	}
	var size int64
	for _, f := range found {
		size += Size(f.Path)
	}
	noun := "volumes"
	if len(found) == 1 {
		noun = "volume"
	}
	return fmt.Sprintf("%d %s with %s", len(found), noun, readable(size))
}

// readable is a size for people.
func readable(bytes int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	size := float64(bytes) / 1024
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}
