// Package payload unpacks the payload: the archive of all programs that coracle runs, which the build appends to the executable.
// It unpacks the payload once, replaces damaged copies, and removes those that are not used any more. In a container image the
// payload is unpacked beside the executable. An executable of `go build` has no payload; its programs are looked for beside
// the executable and in PATH.
//
// The archive is appended and not embedded, so that an executable that was not copied completely still starts and can report
// it. The front uses this package: it links only the standard library and zstd.
package payload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// stamp describes the payload: its SHA-256, its size and its unpacked size, separated by colons. The build sets it with
// -ldflags -X; it is empty in a build without payload.
var stamp string

// place is the prefix of the archive's names. The archive is a layer of the container image, too.
const place = "usr/lib/coracle/"

// mainPart is the program by which an unpacked payload is recognised.
const mainPart = "coracle-core"

// payload is the archive inside an executable.
type payload struct {
	executable string // its path, for messages
	file       string // path of the running executable: an upgrade may have replaced the file at the other path
	sum        string // SHA-256 of the archive, in hex
	size       int64  // of the archive, in bytes
	unpacked   int64  // approximate size in bytes
}

// own returns the payload of this executable; ok is false if it was built without one.
func own() (p payload, ok bool, err error) {
	if stamp == "" {
		return payload{}, false, nil
	}
	p.executable, err = os.Executable()
	if err != nil {
		return payload{}, false, fmt.Errorf("finding this executable: %w", err)
	}
	p.file = "/proc/self/exe"
	p.sum, p.size, p.unpacked, err = parseStamp(stamp)
	return p, err == nil, err
}

func parseStamp(text string) (sum string, size, unpacked int64, err error) {
	if _, err := fmt.Sscanf(strings.ReplaceAll(text, ":", " "), "%64s %d %d", &sum, &size, &unpacked); err != nil || len(sum) != 64 || strings.Count(text, ":") != 2 {
		return "", 0, 0, fmt.Errorf("this build's payload stamp is %q, not sum:size:size", text)
	}
	return sum, size, unpacked, nil
}

// open returns the archive's bytes.
func (p payload) open() (io.Reader, io.Closer, error) {
	f, err := os.Open(p.file)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the payload in %s: %w", p.executable, err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	start := info.Size() - p.size
	if start < 0 {
		f.Close()
		return nil, nil, p.damaged(fmt.Errorf("the file has %d bytes, its payload alone had %d", info.Size(), p.size))
	}
	return io.NewSectionReader(f, start, p.size), f, nil
}

// damaged wraps the error of a payload that is not what the build made.
func (p payload) damaged(why error) error {
	return fmt.Errorf("the executable %s is damaged or was not copied whole: its payload is not what was built (%w); "+
		"get the file again", p.executable, why)
}

// errNoParts is the error of a build without payload if its programs are not found.
var errNoParts = errors.New("this build of coracle has no payload, and " + mainPart +
	" is neither beside it nor in PATH; `make build` makes one that has everything")

// beside returns the directory with the programs for a build without payload.
func beside() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this executable: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("finding this executable: %w", err)
	}
	dir := filepath.Dir(self)
	if _, err := os.Stat(filepath.Join(dir, mainPart)); err == nil {
		return dir, nil
	}
	part, err := exec.LookPath(mainPart)
	if err != nil {
		return "", errNoParts
	}
	if part, err = filepath.EvalSymlinks(part); err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Dir(part))
}
