package results

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// The files that the tests write.
const (
	Log   = "e2e.log"
	JUnit = "junit_01.xml"
)

// The files that are packed with them.
const (
	readmeName  = "README.md"
	productName = "PRODUCT.yaml"
)

// CertifiedFocus selects the tests that a certificate is given for.
const CertifiedFocus = `\[Conformance\]`

// Placeholder begins the values of PRODUCT.yaml that a person has to fill in.
const Placeholder = "FILL IN: "

// Run is a run of the tests, for the files that are packed with its results.
type Run struct {
	// Version is the cluster's, as v1.37.1+coracle.4.
	Version string
	// Image, Focus, Skip and DryRun are what the tests were started with; Parallel is how many ran at once, 1 is one after the other.
	Image, Focus, Skip string
	Parallel           int
	DryRun             bool
	// Nodes is the number of nodes that pods could be scheduled to.
	Nodes int
	Began time.Time
	// Code is the exit code of upstream's runner.
	Code int32
}

// ours reports whether the cluster is one of coracle.
func (r Run) ours() bool { return strings.Contains(r.Version, "+coracle") }

// version matches a cluster's version: the release of Kubernetes, its first two numbers, and what a distributor adds.
var version = regexp.MustCompile(`^((v[0-9]{1,4}\.[0-9]{1,4})\.[0-9]{1,4}(?:-(?:alpha|beta|rc)\.[0-9]{1,4})?)(?:[-+.][0-9A-Za-z.+-]{1,60})?$`)

// Release is the release of Kubernetes that the cluster's version names, without what its distributor adds; "" if it names none.
func (r Run) Release() string { return r.part(1) }

// minor is the release as v1.37.
func (r Run) minor() string { return r.part(2) }

func (r Run) part(i int) string {
	if m := version.FindStringSubmatch(r.Version); m != nil {
		return m[i]
	}
	return ""
}

// product is the directory of the product in the CNCF's repository.
func (r Run) product() string {
	if r.ours() {
		return "coracle"
	}
	return "product"
}

// Dir is the directory of the results below output, as the CNCF's repository has it.
func (r Run) Dir(output string) string { return filepath.Join(output, r.minor(), r.product()) }

// archive is where the results are packed.
func (r Run) archive(output string) string {
	return filepath.Join(output, r.product()+"-"+r.minor()+".tar.gz")
}

// Prepare makes the directory of the results, so that a mistake in output is noticed before hours of tests. Results of a former run must not
// pass for those of this one; only PRODUCT.yaml stays, which a person may have filled in.
func (r Run) Prepare(output string) error {
	dir := r.Dir(output)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the results: %w; choose another --output", err)
	}
	if _, _, err := r.productFile(dir); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(dir, Log), filepath.Join(dir, JUnit), filepath.Join(dir, readmeName), r.archive(output)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the results of a former run: %w; choose another --output", err)
		}
	}
	return nil
}

// Unfit says why a run is not one that the CNCF gives a certificate for; "" if it is.
func (r Run) Unfit(s Summary) string {
	switch {
	case r.DryRun:
		return "it was a dry run"
	case r.Focus != CertifiedFocus:
		return "--focus selected other tests than " + CertifiedFocus
	case r.Skip != "":
		return "--skip left tests out"
	case s.Failed > 0:
		return "tests failed"
	case s.Passed == 0:
		return "no test ran"
	case r.Code != 0:
		return fmt.Sprintf("no test failed, but the run ended with code %d", r.Code)
	}
	return ""
}

// Pack writes README.md and PRODUCT.yaml beside the log and the JUnit file in Dir, and all four to an archive. It returns the archive's
// path and the fields of PRODUCT.yaml that a person has to fill in.
func (r Run) Pack(output string, s Summary) (archive string, missing []string, err error) {
	dir := r.Dir(output)
	product, missing, err := r.productFile(dir)
	if err != nil {
		return "", nil, err
	}
	for name, data := range map[string][]byte{readmeName: []byte(r.readme(s)), productName: product} {
		if err := atomicfile.Write(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", nil, err
		}
	}
	archive = r.archive(output)
	err = atomicfile.WriteWith(archive, 0o644, func(f *os.File) error {
		z := gzip.NewWriter(f)
		w := tar.NewWriter(z)
		for _, name := range []string{readmeName, productName, Log, JUnit} {
			if err := add(w, filepath.Join(dir, name), path.Join(r.minor(), r.product(), name), r.Began); err != nil {
				return fmt.Errorf("packing %s: %w", name, err)
			}
		}
		return errors.Join(w.Close(), z.Close())
	})
	return archive, missing, err
}

// add copies a file into an archive.
func add(w *tar.Writer, file, name string, at time.Time) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, info.Size())
	return err
}
