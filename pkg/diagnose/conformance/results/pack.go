package results

import (
	"archive/tar"
	"cmp"
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

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// The files that the tests write.
const (
	Log   = "e2e.log"
	JUnit = "junit_01.xml"
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

// Prepare makes the directory of the results, so that a mistake in output is noticed before hours of tests.
func (r Run) Prepare(output string) error {
	if err := os.MkdirAll(r.Dir(output), 0o755); err != nil {
		return fmt.Errorf("making the directory of the results: %w; choose another --output", err)
	}
	for _, name := range []string{Log, JUnit} { // results of a former run must not pass for those of this one
		if err := os.Remove(filepath.Join(r.Dir(output), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
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
	}
	return ""
}

// Pack writes README.md and PRODUCT.yaml beside the log and the JUnit file in Dir, and all four to an archive. It returns the archive's
// path and the fields of PRODUCT.yaml that a person has to fill in.
func (r Run) Pack(output string, s Summary) (archive string, missing []string, err error) {
	dir := r.Dir(output)
	product, missing := r.productFile()
	for name, data := range map[string][]byte{"README.md": []byte(r.readme(s)), "PRODUCT.yaml": product} {
		if err := atomicfile.Write(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", nil, err
		}
	}
	archive = filepath.Join(output, r.product()+"-"+r.minor()+".tar.gz")
	err = atomicfile.WriteWith(archive, 0o644, func(f *os.File) error {
		z := gzip.NewWriter(f)
		w := tar.NewWriter(z)
		for _, name := range []string{"README.md", "PRODUCT.yaml", Log, JUnit} {
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

// productFile is PRODUCT.yaml, and the names of its fields with placeholders.
func (r Run) productFile() (data []byte, missing []string) {
	name, repository, kind, description := "", "", "", ""
	documentation := ""
	if r.ours() {
		name, repository = "coracle", "https://github.com/coracle-dev/coracle"
		documentation = repository + "/tree/" + r.Version + "/docs"
		kind, description = "distribution", "Kubernetes in one executable."
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, field := range []struct{ name, value, fill string }{
		{"vendor", "", "the legal entity whose participation form the CNCF has"},
		{"name", name, "the product's name"},
		{"version", r.Version, ""},
		{"website_url", "", "page about the product"},
		{"repo_url", repository, "repository with the source; leave the line out if it is not open"},
		{"documentation_url", documentation, "page of the documentation"},
		{"product_logo_url", "", "SVG, AI or EPS file with the product's name in it; leave the line out to use the vendor's"},
		{"type", kind, "distribution, hosted platform or installer"},
		{"description", description, "one sentence"},
		{"contact_email_address", "", "where the CNCF reaches the vendor"},
	} {
		if field.value == "" {
			missing = append(missing, field.name)
		}
		root.Content = append(root.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: field.name},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: cmp.Or(field.value, Placeholder+field.fill)})
	}
	data, err := yaml.Marshal(root)
	if err != nil { // of scalars that are made here
		return []byte("# " + err.Error() + "\n"), missing
	}
	return data, missing
}
