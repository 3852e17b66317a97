package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// usage is the use of resources by a process.
type usage struct {
	memory int64   // bytes
	cpu    float64 // seconds, of all its threads since its start
	user   int     // its effective user
}

func readUsage(pid int) (usage, error) {
	p, err := process.Find(pid)
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	u := usage{cpu: p.CPU.Seconds()}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			u.memory = kb * 1024
		}
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			if ids := strings.Fields(rest); len(ids) > 1 { // the real one, the effective one and others
				u.user, _ = strconv.Atoi(ids[1])
			}
		}
	}
	return u, err
}

// dirSize adds up the bytes on disk of a directory, without other file systems in it. It returns zero if that takes too long.
func dirSize(root string, until time.Time) (total int64) {
	info, err := os.Lstat(root)
	if err != nil {
		return 0
	}
	device := info.Sys().(*syscall.Stat_t).Dev
	linked := map[uint64]bool{}
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed meanwhile, or cannot be read
		}
		if time.Now().After(until) {
			return errors.New("too long")
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Dev != device {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if stat.Nlink > 1 && !d.IsDir() {
			if linked[stat.Ino] {
				return nil
			}
			linked[stat.Ino] = true
		}
		total += stat.Blocks * 512
		return nil
	})
	if err != nil {
		return 0
	}
	return total
}
