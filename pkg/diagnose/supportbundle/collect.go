package supportbundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Command collects the output of a program, which is killed after its time limit. env is added to this process' environment.
func Command(env []string, argv ...string) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		out, err := output(ctx, env, argv...)
		if len(out) > 0 || err == nil {
			to.Add("", out)
		}
		return err
	}
}

// output returns what a program prints, even if it fails. Then its error is what it writes to stderr.
func output(ctx context.Context, env []string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = grace / 2
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ctx.Err() == nil && out.Len() > 0 && stderr.Len() == 0: // the exit code is a result too
		err = nil
	case ctx.Err() != nil:
		err = fmt.Errorf("%s did not answer in time", strings.Join(argv[:min(len(argv), 3)], " "))
	case errors.Is(err, exec.ErrWaitDelay): // a process that it started holds its output open
		err = nil
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("there is no program %s", argv[0])
	case err != nil && stderr.Len() > 0:
		err = errors.New(lastLines(stderr.String(), 5))
	}
	return out.Bytes(), err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Paths collects the files that match patterns of filepath.Glob, except those that skip selects; nil selects none. The name
// of each is its path without the leading slash. It is no error if nothing matches.
func Paths(skip func(path string) bool, patterns ...string) func(context.Context, *Files) error {
	return matching(skip, func(path string) string { return strings.TrimPrefix(path, "/") }, patterns)
}

// Flat is Paths with the last element of the path as the name.
func Flat(skip func(path string) bool, patterns ...string) func(context.Context, *Files) error {
	return matching(skip, filepath.Base, patterns)
}

func matching(skip func(path string) bool, name func(path string) string, patterns []string) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		for _, pattern := range patterns {
			found, err := filepath.Glob(pattern)
			if err != nil {
				return fmt.Errorf("looking for %s: %w", pattern, err)
			}
			for _, path := range found {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if skip != nil && skip(path) {
					continue
				}
				addFile(to, name(path), path)
			}
		}
		return nil
	}
}

// One collects one file under the collector's name. If it is missing, that is noted.
func One(path string) func(context.Context, *Files) error {
	return func(_ context.Context, to *Files) error {
		addFile(to, "", path)
		return nil
	}
}

// Tree lists all files below directories with their sizes, modes and times, but not the files of containers.
func Tree(dirs ...string) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		var out bytes.Buffer
		for _, dir := range dirs {
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil:
					fmt.Fprintf(&out, "%s: %v\n", path, err)
					return nil
				}
				fmt.Fprintln(&out, entry(path, d))
				if d.IsDir() && deep[d.Name()] {
					return fs.SkipDir
				}
				return nil
			})
			if err != nil {
				to.Note("%s: %v", dir, err)
			}
		}
		to.Add("", out.Bytes())
		return nil
	}
}

// deep are directories whose many files are not coracle's.
var deep = map[string]bool{
	"io.containerd.content.v1.content": true, "io.containerd.snapshotter.v1.overlayfs": true, "io.containerd.snapshotter.v1.native": true,
	"io.containerd.runtime.v2.task": true, "busybox.d": true, "pods": true,
}

func entry(path string, d fs.DirEntry) string {
	info, err := d.Info()
	if err != nil {
		return path + ": " + err.Error()
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		target, _ = os.Readlink(path) // "" if it was removed
		target = " -> " + target
	}
	return fmt.Sprintf("%s %10d %s %s%s", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), path, target)
}

// addFile adds the end of a regular file. It never waits for a pipe or a device.
func addFile(to *Files, name, path string) {
	data, err := tail(path, int64(to.most)+1)
	switch {
	case errors.Is(err, errNoFile), errors.Is(err, fs.ErrNotExist) && name != "":
	case err != nil:
		to.Note("%v", err)
	default:
		to.Add(name, data)
	}
}

var errNoFile = errors.New("not a regular file")

// tail reads at most the last most bytes of a file. The kernel's files have no size, and are read from the beginning.
func tail(path string, most int64) ([]byte, error) {
	f, err := atomicfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNoFile)
	}
	if info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// modifiedSince reports whether a file was written after a time; false if it cannot be read.
func modifiedSince(path string, since time.Time) bool {
	info, err := os.Stat(path)
	return err == nil && !info.ModTime().Before(since)
}
