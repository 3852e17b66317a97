// Package payload is the payload: the archive of everything that coracle runs besides itself, appended to the
// executable by the build. It unpacks it once, keeps it whole and removes what is no longer used. In a container image
// the payload lies unpacked beside the executable, which carries none. A plain `go build` has no payload at all; then the
// parts are looked for beside the executable and in PATH.
//
// The archive is behind the executable's own bytes and not embedded in them, so that a file that was cut short while
// it was copied still starts and can say so. The front uses this package: it links the standard library and zstd only.
package payload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// stamp is what the build says about the payload it appends: its SHA-256, its size and its size unpacked, separated
// by colons. Set with -ldflags -X; empty in a build without payload.
var stamp string

// place is what the archive's names begin with: the archive is a layer of the container image, too.
const place = "usr/lib/coracle/"

// mainPart is the part that a directory must hold to be taken for a payload.
const mainPart = "coracle-core"

// payload is the archive inside an executable.
type payload struct {
	executable string // for messages
	file       string // what to open: an upgrade may have replaced the file at the executable's path since it was started
	sum        string // SHA-256 of the archive, in hex
	size       int64  // of the archive, in bytes
	unpacked   int64  // in bytes, roughly
}

// own returns the payload that the build promised for this executable; ok is false if it promised none.
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
	parts := strings.Split(text, ":")
	if len(parts) == 3 && len(parts[0]) == 64 {
		var errSize, errUnpacked error
		size, errSize = strconv.ParseInt(parts[1], 10, 64)
		unpacked, errUnpacked = strconv.ParseInt(parts[2], 10, 64)
		if errSize == nil && errUnpacked == nil {
			return parts[0], size, unpacked, nil
		}
	}
	return "", 0, 0, fmt.Errorf("this build's payload stamp is %q, not sum:size:size", text)
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

// damaged says what to do about a payload that is not what the build made.
func (p payload) damaged(why error) error {
	return fmt.Errorf("the executable %s is damaged or was not copied whole: its payload is not what was built (%w); "+
		"get the file again", p.executable, why)
}

// errNoParts is what a build without payload says if it finds no parts elsewhere either.
var errNoParts = errors.New("this build of coracle has no payload, and " + mainPart +
	" is neither beside it nor in PATH; `make build` makes one that has everything")

// beside returns the directory with the parts for a build without payload.
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
