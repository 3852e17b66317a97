package cis

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// file is what the kernel says about a file.
type file struct {
	path  string
	mode  fs.FileMode
	owner uint32
	group uint32
	err   error
}

func stat(path string) file {
	info, err := os.Stat(path)
	if err != nil {
		return file{path: path, err: err}
	}
	f := file{path: path, mode: info.Mode().Perm()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		f.owner, f.group = sys.Uid, sys.Gid
	}
	return f
}

// String is the evidence about a file.
func (f file) String() string {
	if f.err != nil {
		return f.err.Error()
	}
	return fmt.Sprintf("%s has mode %03o and owner %d:%d", f.path, f.mode, f.owner, f.group)
}

// list returns the paths that a probe looks at.
type list func(*Machine) []string

// mode compares the modes of files: they must have no bits outside of mask.
func mode(files list, mask fs.FileMode) probe {
	return each(files, func(f file) bool { return f.mode&^mask == 0 })
}

// rootOwned compares the owners of files.
func rootOwned(files list) probe {
	return each(files, func(f file) bool { return f.owner == 0 && f.group == 0 })
}

// shown is how many files that are as they should be are listed.
const shown = 3

func each(files list, ok func(file) bool) probe {
	return func(m *Machine) verdict {
		var good, bad []string
		for _, path := range files(m) {
			if f := stat(path); f.err != nil || !ok(f) {
				bad = append(bad, f.String())
			} else {
				good = append(good, f.String())
			}
		}
		switch {
		case len(bad) > 0:
			return verdict{result: Fail, evidence: strings.Join(bad, ", ")}
		case len(good) == 0:
			return verdict{NotApplicable, "there is no such file", "coracle has not made one"}
		case len(good) > shown:
			good = append(good[:shown:shown], fmt.Sprintf("and %d more of this kind", len(good)-shown))
		}
		return verdict{result: Pass, evidence: strings.Join(good, ", ")}
	}
}

// existing leaves out files that are not there.
func existing(files ...string) []string {
	return slices.DeleteFunc(files, func(path string) bool { return !paths.Exists(path) })
}

// below returns all files in a directory and its subdirectories whose names match.
func below(dir, pattern string) (out []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if ok, _ := filepath.Match(pattern, filepath.Base(path)); ok || err != nil {
			out = append(out, path) // of what cannot be listed, stat tells the error
		}
		return nil
	})
	return out
}
