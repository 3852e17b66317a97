// Package supportbundle collects information about a problem into one compressed archive. A collector that fails, hangs or
// finds too much affects only its own part, and the archive lists such collectors with the reason. Everything that is written
// passes a redactor, so that no secret leaves the machine.
//
// The collectors are a table (Sources.Collectors). Those in cluster.go need the API; the others work when coracle does not run.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// Collector adds one or more files. The files that it has added are kept if it returns an error.
type Collector struct {
	// Name is the path of its file, or the directory of its files.
	Name string
	// About describes them in a few words.
	About   string
	Collect func(ctx context.Context, to *Files) error
	// Timeout is its time limit. Zero means Bundle.Timeout.
	Timeout time.Duration
}

// Bundle has the settings for an archive.
type Bundle struct {
	// Name is the top directory in the archive.
	Name     string
	Made     time.Time
	Title    string   // the first line of the README
	Notes    []string // what is missing from the start, and why
	Redactor *redact.Redactor
	// Timeout is the time limit of each collector, and AtOnce the number that run at the same time.
	Timeout time.Duration
	AtOnce  int
	// MaxFile and Max limit the bytes of one file and of all files, before compression.
	MaxFile, Max int
}

// Outcome is the result of a collector.
type Outcome struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Files []File   `json:"files,omitempty"`
	Notes []string `json:"notes,omitempty"` // what is missing or was cut, and why
	Took  float64  `json:"tookSeconds"`
}

// File is one file of the archive.
type File struct {
	Name string `json:"name"`
	Size int    `json:"sizeBytes"`
}

// Files receives what a collector adds. It is safe for use by several goroutines.
type Files struct {
	name string
	most int

	mu     sync.Mutex
	closed bool
	all    []content
	notes  []string
}

type content struct {
	name string
	data []byte
}

// Add adds a file. An empty name means the collector's own name; other names are below it. Of a file that is too large, only
// the end is kept.
func (f *Files) Add(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	full := path.Join(f.name, name)
	if len(data) > f.most {
		f.notes = append(f.notes, fmt.Sprintf("%s: only the last %d of %d bytes", full, f.most, len(data)))
		data = data[len(data)-f.most:]
	}
	f.all = append(f.all, content{full, data})
}

// Note records what is missing, and why.
func (f *Files) Note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.notes = append(f.notes, fmt.Sprintf(format, args...))
	}
}

// close returns what has been added. Later additions are dropped.
func (f *Files) close() ([]content, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.all, f.notes
}

// Write runs the collectors and writes the archive. The outcomes are in the collectors' order.
func (b Bundle) Write(ctx context.Context, to io.Writer, collectors []Collector) ([]Outcome, error) {
	zipped := gzip.NewWriter(to)
	a := &archive{Bundle: b, tar: tar.NewWriter(zipped)}
	outcomes := make([]Outcome, len(collectors))
	var all errgroup.Group
	all.SetLimit(max(b.AtOnce, 1))
	for i, c := range collectors {
		all.Go(func() error {
			outcomes[i] = a.run(ctx, c)
			return nil
		})
	}
	_ = all.Wait() // an outcome has the error of its collector
	a.add("README.txt", readme(b, outcomes))
	if a.err == nil {
		a.err = a.tar.Close()
	}
	if a.err == nil {
		a.err = zipped.Close()
	}
	if a.err != nil {
		return outcomes, fmt.Errorf("writing the bundle: %w", a.err)
	}
	return outcomes, nil
}

// archive is a bundle that is being written.
type archive struct {
	Bundle
	mu      sync.Mutex
	tar     *tar.Writer
	written int
	err     error // the first one
}

// grace is how long a collector may continue after its time limit, to report what it waited for.
const grace = 500 * time.Millisecond

// run runs one collector. A collector that ignores its time limit, as when a disk hangs, is abandoned.
func (a *archive) run(ctx context.Context, c Collector) Outcome {
	limit := cmp.Or(c.Timeout, a.Timeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	files := &Files{name: c.Name, most: a.MaxFile}
	done := make(chan error, 1)
	go func() { done <- safely(ctx, c, files) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(limit + grace):
		err = fmt.Errorf("it took longer than %s and was abandoned", limit)
	}
	contents, notes := files.close()
	out := Outcome{Name: c.Name, About: c.About, Notes: notes, Took: time.Since(began).Seconds()}
	for _, f := range contents {
		if why := a.add(f.name, f.data); why != "" {
			out.Notes = append(out.Notes, f.name+": "+why)
			continue
		}
		out.Files = append(out.Files, File{f.name, len(f.data)})
	}
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	for i := range out.Notes {
		out.Notes[i] = a.Redactor.String(out.Notes[i])
	}
	return out
}

// safely calls the collector's function, and returns a panic as an error.
func safely(ctx context.Context, c Collector, to *Files) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("it panicked: %v", broken)
		}
	}()
	return c.Collect(ctx, to)
}

// add writes one file, redacted. why is the reason why it was left out, "" if it was written.
func (a *archive) add(name string, data []byte) (why string) {
	text := a.Redactor.String(string(bytes.ToValidUTF8(data, []byte("?"))))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return "the archive could not be written"
	}
	if a.written += len(text); a.written > a.Max && name != "README.txt" {
		a.written -= len(text)
		return fmt.Sprintf("left out: the bundle would be larger than %d MiB", a.Max>>20)
	}
	header := &tar.Header{Name: path.Join(a.Name, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.Made, Format: tar.FormatPAX}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
	return ""
}
