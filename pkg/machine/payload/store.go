package payload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/filelock"
)

// store is a directory with unpacked payloads, each in a directory named by its SHA-256.
type store struct{ root string }

func (s store) dir(sum string) string { return filepath.Join(s.root, sum) }

// listName is the file in an unpacked payload that lists the others.
const listName = ".files.json"

// unpackedFile describes a file when it was unpacked. Every write changes the ctime, so that most damage is detected without reading
// 200 MB. What the disk itself changes only the checksum shows.
type unpackedFile struct {
	Size    int64       `json:"size"`
	Mode    fs.FileMode `json:"mode"`
	Changed int64       `json:"changed"`       // ctime, nanoseconds
	Sum     uint32      `json:"sum,omitempty"` // CRC-32C of a regular file
}

func describe(info fs.FileInfo) unpackedFile {
	f := unpackedFile{Size: info.Size(), Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Changed = st.Ctim.Nano()
	}
	return f
}

// whole reports whether the payload exists with every file as it was unpacked, and the caller can read it. Only with read it compares the
// files' content.
func (s store) whole(sum string, read bool) bool {
	dir := s.dir(sum)
	data, err := os.ReadFile(filepath.Join(dir, listName))
	if err != nil {
		return false
	}
	var files map[string]unpackedFile
	if err := json.Unmarshal(data, &files); err != nil || len(files) == 0 {
		return false
	}
	for name, want := range files {
		info, err := os.Lstat(filepath.Join(dir, name))
		want.Sum = 0
		if err != nil || describe(info) != want {
			return false
		}
	}
	if !read {
		return true
	}
	names := slices.Collect(maps.Keys(files))
	var damaged atomic.Bool
	var readers sync.WaitGroup
	for reader := range 2 {
		readers.Go(func() {
			for i := reader; i < len(names); i += 2 {
				file := filepath.Join(dir, names[i])
				if want := files[names[i]].Sum; want != 0 && sumOf(file) != want {
					logrus.Warnf("%s has changed since it was unpacked: unpacking all again", file)
					damaged.Store(true)
				}
			}
		})
	}
	readers.Wait()
	return !damaged.Load()
}

// sumOf returns the checksum of a file, 0 if it cannot be read.
func sumOf(file string) uint32 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, make([]byte, 256<<10)); err != nil {
		return 0
	}
	return sum.Sum32()
}

// lock makes the store's directory and keeps other processes from unpacking to it.
func (s store) lock(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for the payload: %w", err)
	}
	f, err := filelock.Wait(ctx, filepath.Join(s.root, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("unpacking to %s: %w", s.root, err)
	}
	return f, nil
}

// Prefixes of directories that are not payloads: those that are being unpacked, and damaged ones.
const (
	tempPrefix  = ".unpacking-"
	asidePrefix = ".damaged-"
)

// ensure unpacks the payload unless a whole copy exists, of which it reads all if read is set. The caller holds the lock.
func (s store) ensure(ctx context.Context, p payload, read bool, progress Progress) error {
	if s.whole(p.sum, read) {
		return nil
	}
	if err := Room(s.root, p.unpacked, "unpacking"); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(s.root, tempPrefix)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	if err := extract(ctx, p, temp, progress); err != nil {
		return err
	}
	debug.FreeOSMemory() // of the decompressor, which the front does not need again
	// Processes may still run programs of a damaged copy; prune removes it later.
	aside := filepath.Join(s.root, asidePrefix+filepath.Base(temp)[len(tempPrefix):])
	if err := os.Rename(s.dir(p.sum), aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("putting a damaged payload aside: %w", err)
	}
	if err := os.Rename(temp, s.dir(p.sum)); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	return atomicfile.SyncDir(s.root)
}

// Room fails if less than need bytes can be written in dir. what needs them.
func Room(dir string, need int64, what string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil // then writing fails
	}
	const mb = 1_000_000
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("%s needs %d MB in %s, where %d MB are free", what, need/mb+1, dir, free/mb)
	}
	return nil
}

// prune removes every payload except keep, held ones, and those whose programs run. The next start repeats what fails.
func (s store) prune(keep string) {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return
	}
	var old []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() && name != keep && !s.held(name) && (len(name) == 64 || strings.HasPrefix(name, tempPrefix) || strings.HasPrefix(name, asidePrefix)) {
			old = append(old, filepath.Join(s.root, name))
		}
	}
	if len(old) == 0 {
		return
	}
	running := executables()
	for _, dir := range old {
		if !holds(dir, running) {
			os.RemoveAll(dir)
		}
	}
}

// fileID identifies a file in any mount namespace.
type fileID struct{ dev, ino uint64 }

// executables returns the executables of all processes.
func executables() map[fileID]bool {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	running := map[fileID]bool{}
	for _, link := range links {
		if info, err := os.Stat(link); err == nil {
			running[identify(info)] = true
		}
	}
	return running
}

// holds reports whether one of the running files is in dir.
func holds(dir string, running map[fileID]bool) bool {
	used := false
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil && running[identify(info)] {
			used = true
			return fs.SkipAll
		}
		return nil
	})
	return used
}

func identify(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{uint64(st.Dev), st.Ino}
}
