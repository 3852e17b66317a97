package localpath

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/quantity"
)

// Found is the directory of a volume on the disk, with or without a PersistentVolume.
type Found struct {
	Path string
	PV   string
}

// depth is how many levels deep directories of a pathPattern are searched.
const depth = 6

// pvName matches the names that the provisioner library gives to PersistentVolumes.
const pvName = `pvc-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// named matches the names of directories without a pathPattern.
var named = regexp.MustCompile(`^(` + pvName + `)_`)

// Find lists the directories of volumes below a directory, as far as it comes until ctx is done: the directory may have millions of others. It skips what
// it cannot read.
func Find(ctx context.Context, base string) (out []Found) {
	_ = fs.WalkDir(os.DirFS(base), ".", func(rel string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
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

// Size returns how many bytes the files below a directory take on the disk. It does not count other file systems that are
// mounted there, and skips files that are removed meanwhile.
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

// Summary describes the number and size of the volumes in a directory, as "2 volumes with 1.5 GiB"; "" if there are none.
func Summary(base string) string {
	found := Find(context.Background(), base)
	if len(found) == 0 {
		return ""
	}
	var size int64
	for _, f := range found {
		size += Size(f.Path)
	}
	return quantity.Count(len(found), "volume", "volumes") + " with " + quantity.Bytes(size)
}
