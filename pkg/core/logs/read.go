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
)

// Filter says which lines are wanted. The zero value wants all of them.
type Filter struct {
	// Since leaves out what was logged before.
	Since time.Time
	// Component wants the lines of one part only, by its name; "" wants all.
	Component string
	// Level leaves out what is less serious. The zero value, panic, leaves out nothing.
	Level logrus.Level

	// carried says whether the last line that could be read was wanted: the lines of a stack have no time and no
	// component, and go with the line before them.
	carried, began bool
}

// Wants reports whether a line is wanted. Lines come in the order in which they were logged.
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

// Read hands the lines of a ring that filter wants to line, the oldest first, until that returns an error. Zeros that
// a power loss left instead of a line's end are skipped.
func Read(path string, filter *Filter, line func(string) error) error {
	newest, err := read(path, filter, line)
	if err != nil || newest == nil {
		return err
	}
	defer newest.close()
	// A line that whoever wrote it did not finish may be the one that tells why.
	if text := strings.Trim(newest.part, "\x00"); text != "" && filter.Wants(text) {
		return line(text)
	}
	return nil
}

// read returns how far it came in the newest file, for following it, and nil if there is no newest file yet.
func read(path string, filter *Filter, line func(string) error) (newest *reader, err error) {
	for _, name := range Files(path) {
		r, err := openReader(name)
		if errors.Is(err, fs.ErrNotExist) { // renamed just now: its lines come again under the next name
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
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &reader{file: f, buf: bufio.NewReaderSize(f, 64<<10)}, nil
}

func (r *reader) close() { r.file.Close() }

// rest hands over the lines up to where the file ends for now.
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
