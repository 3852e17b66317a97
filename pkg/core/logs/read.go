package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Filter selects lines. The zero value selects all of them.
type Filter struct {
	// Since drops earlier lines.
	Since time.Time
	// Component selects the lines of one component; "" selects all.
	Component string
	// Level drops less severe lines. The zero value, panic, drops nothing.
	Level logrus.Level

	// carried is the result for the last line that Parse could read. Lines of a stack have no time and no component, and
	// are treated like the line before them.
	carried, began bool
}

// Wants reports whether a line is selected. It is called with all lines in the order in which they were logged.
func (f *Filter) Wants(s string) bool {
	line, ok := Parse(s)
	switch {
	case !ok && f.began:
		return f.carried
	case !ok:
		return f.Since.IsZero() && f.Component == "" && f.Level == 0
	}
	f.began = true
	f.carried = !line.Time.Before(f.Since) && (f.Component == "" || f.Component == line.Component) &&
		(f.Level == 0 || line.Level <= f.Level)
	return f.carried
}

// Files lists the files of a ring, the oldest first. There are none before the first line.
func Files(path string) (out []string) {
	for i := ringFiles; i >= 0; i-- {
		name := path
		if i > 0 {
			name += "." + strconv.Itoa(i)
		}
		if _, err := os.Lstat(name); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// Read calls line with the selected lines of a ring, the oldest first, until line returns an error. It skips zero bytes, which
// a power loss leaves in place of the last lines.
func Read(path string, filter *Filter, line func(string) error) error {
	newest, err := read(path, filter, line)
	if err != nil || newest == nil {
		return err
	}
	defer newest.close()
	// An unfinished line may be the one that describes a crash.
	if text := strings.Trim(newest.part, "\x00"); text != "" && filter.Wants(text) {
		return line(text)
	}
	return nil
}

// read is Read without an unfinished last line. It returns the reader of the newest file, nil if there is none yet.
func read(path string, filter *Filter, line func(string) error) (newest *reader, err error) {
	for _, name := range Files(path) {
		r, err := openReader(name)
		if errors.Is(err, fs.ErrNotExist) { // renamed just now: its lines follow under the next name
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the log: %w", err)
		}
		err = r.rest(filter, line)
		if err != nil || name != path {
			r.close()
		}
		if err != nil {
			return nil, err
		}
		if name == path {
			newest = r
		}
	}
	return newest, nil
}

// reader reads a file that may grow.
type reader struct {
	file *os.File
	buf  *bufio.Reader
	part string // of a line that has no end yet
}

func openReader(name string) (*reader, error) {
	f, err := atomicfile.Open(name)
	if err != nil {
		return nil, err
	}
	return &reader{file: f, buf: bufio.NewReaderSize(f, 64<<10)}, nil
}

func (r *reader) close() { r.file.Close() }

// rest reads the lines up to the current end of the file.
func (r *reader) rest(filter *Filter, line func(string) error) error {
	for {
		text, err := r.buf.ReadString('\n')
		r.part += text
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		whole := strings.Trim(strings.TrimSuffix(r.part, "\n"), "\x00")
		r.part = ""
		if whole == "" || !filter.Wants(whole) {
			continue
		}
		if err := line(whole); err != nil {
			return err
		}
	}
}
