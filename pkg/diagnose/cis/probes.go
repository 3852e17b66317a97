package cis

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// condition decides about the value of a flag, and whether it is set.
type condition func(value string, set bool) bool

func given(value string, set bool) bool { return set && value != "" }
func unset(_ string, set bool) bool     { return !set }

func is(want string) condition {
	return func(value string, set bool) bool { return set && value == want }
}

// isNot accepts upstream's default too.
func isNot(bad string) condition {
	return func(value string, set bool) bool { return !set || value != bad }
}

func has(word string) condition {
	return func(value string, set bool) bool { return set && slices.Contains(strings.Split(value, ","), word) }
}

func lacks(word string) condition {
	return func(value string, _ bool) bool { return !slices.Contains(strings.Split(value, ","), word) }
}

func atLeast(least int) condition {
	return func(value string, _ bool) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= least
	}
}

// flag compares one flag of a part, which is its evidence.
func flag(part, name string, ok condition) probe {
	return func(m *Machine) verdict {
		s, started := m.Parts[part]
		if !started {
			return m.absent(part)
		}
		value, set := s.Flag(name)
		evidence := fmt.Sprintf("%s --%s=%s", part, name, value)
		if !set {
			evidence = fmt.Sprintf("%s has no flag --%s", part, name)
		}
		return passes(ok(value, set), evidence)
	}
}

// both joins probes: all must pass.
func both(all ...probe) probe {
	return func(m *Machine) (sum verdict) {
		var evidence []string
		for i, p := range all {
			v := p(m)
			evidence = append(evidence, v.evidence)
			if i == 0 || v.result != Pass {
				sum.result, sum.reason = v.result, v.reason
			}
			if v.result == Fail {
				break
			}
		}
		sum.evidence = strings.Join(evidence, ", ")
		return sum
	}
}

// unlessSocket is a probe of TLS between two programs of this machine, which need none if they talk over a unix socket.
func unlessSocket(part, urls string, p probe) probe {
	return func(m *Machine) verdict {
		s, started := m.Parts[part]
		if !started {
			return m.absent(part)
		}
		value, _ := s.Flag(urls)
		evidence := fmt.Sprintf("%s --%s=%s", part, urls, value)
		for _, url := range strings.Split(value, ",") {
			path, ok := strings.CutPrefix(url, "unix://")
			if !ok {
				return p(m)
			}
			dir := stat(filepath.Dir(path))
			evidence += ", " + dir.String()
			if dir.err != nil || dir.mode&^0o700 != 0 {
				return verdict{Fail, evidence, "only the control plane's user may reach the socket"}
			}
		}
		return verdict{NotApplicable, evidence, "etcd's clients use a unix socket that only root and the control plane's user can reach; nothing listens on the network"}
	}
}

// kubelet compares a setting of the kubelet's whole configuration.
func kubelet(ok func(any) bool, path ...string) probe {
	return func(m *Machine) verdict {
		value := m.kubelet(path...)
		evidence := fmt.Sprintf("kubelet %s: %v", strings.Join(path, "."), value)
		if value == nil {
			evidence = fmt.Sprintf("kubelet %s is not set", strings.Join(path, "."))
		}
		return passes(ok(value), evidence)
	}
}

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
	return slices.DeleteFunc(files, func(path string) bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
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
