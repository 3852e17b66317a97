package status

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a process takes of the machine.
type usage struct {
	memory int64   // bytes
	cpu    float64 // seconds, of all its threads since its start
}

// ticksPerSecond is USER_HZ, which Linux fixes for what it tells programs.
const ticksPerSecond = 100

func readUsage(pid int) (usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	var u usage
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			u.memory = kb * 1024
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, errors.New("unknown form of /proc/PID/stat")
	}
	for _, field := range fields[11:13] { // utime and stime, fields 14 and 15
		ticks, _ := strconv.ParseInt(string(field), 10, 64)
		u.cpu += float64(ticks) / ticksPerSecond
	}
	return u, nil
}

// dirSize adds up the bytes on disk of a directory on its own file system. It is zero if that takes too long.
func dirSize(root string, until time.Time) (total int64) {
	info, err := os.Lstat(root)
	if err != nil {
		return 0
	}
	device := info.Sys().(*syscall.Stat_t).Dev
	linked := map[uint64]bool{}
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile, or not for us
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
