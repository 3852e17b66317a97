package results

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="6"><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] [sig-node] one [Conformance]" status="passed"><system-err>a &lt;failure&gt; in words</system-err></testcase>
<testcase name="[It] [sig-node] two" status="failed"><failure message="no">it did not</failure></testcase>
<testcase name="[It] [sig-node] three" status="skipped"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-node] four&#10;` + "\u202e" + `five" status="panicked"><error message="oh"></error></testcase>
<testcase name="[ReportAfterSuite] Kubernetes e2e suite report" status="passed"></testcase>
</testsuite></testsuites>`

func TestSummarize(t *testing.T) {
	s, err := Summarize(strings.NewReader(report))
	want := Summary{Passed: 1, Failed: 2, Skipped: 1, Failures: []string{"[sig-node] two", "[sig-node] four ?five"}}
	if err != nil || s.String() != want.String() || !slices.Equal(s.Failures, want.Failures) {
		t.Errorf("got %s %q, %v", s, s.Failures, err)
	}
	broken := strings.Replace(report, `name="[SynchronizedBeforeSuite]" status="passed">`, `name="[SynchronizedBeforeSuite]"><failure/>`, 1)
	if s, err := Summarize(strings.NewReader(broken)); err != nil || s.Failed != 3 || s.Passed != 1 {
		t.Errorf("a failed set-up: %s, %v", s, err)
	}
	for name, text := range map[string]string{"cut off": report[:len(report)/2], "empty": "", "other": "<a></a>", "text": "e2e"} {
		if s, err := Summarize(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func TestSummarizeBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString("<testsuite>")
	for range mostFailures + 5 {
		b.WriteString(`<testcase name="` + strings.Repeat("é", longestName) + `"><failure/></testcase>`)
	}
	b.WriteString("</testsuite>")
	s, err := Summarize(strings.NewReader(b.String()))
	if err != nil || s.Failed != mostFailures+5 || len(s.Failures) != mostFailures {
		t.Fatalf("%d failed, %d named, %v", s.Failed, len(s.Failures), err)
	}
	if name := s.Failures[0]; len(name) > longestName+len("…") || !utf8.ValidString(name) {
		t.Errorf("a name has %d bytes: %q", len(name), name)
	}
}

func FuzzSummarize(f *testing.F) {
	f.Add(report)
	f.Add(`<testsuite><testcase name="[It] a"/><testcase/></testsuite>`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Summarize(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(s.Failures) > s.Failed || s.Passed < 0 {
			t.Errorf("%+v", s)
		}
		for _, name := range s.Failures {
			if strings.ContainsAny(name, "\n\t\x1b") || !utf8.ValidString(name) {
				t.Errorf("%q", name)
			}
		}
	})
}

func pack(t *testing.T, r Run, s Summary) (dir, archive string, missing []string) {
	t.Helper()
	dir = t.TempDir()
	if err := r.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Log, JUnit} {
		if err := os.WriteFile(filepath.Join(r.Dir(dir), name), []byte("of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive, missing, err := r.Pack(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return dir, archive, missing
}

// TestPack: the files are those that the CNCF's instructions ask for.
func TestPack(t *testing.T) {
	r := Run{Version: "v1.37.1+coracle.4", Image: "registry.k8s.io/conformance:v1.37.1", Focus: CertifiedFocus, Parallel: 1, Nodes: 2, Began: time.Unix(1796000000, 0)}
	dir, archive, missing := pack(t, r, Summary{Passed: 420})
	if archive != filepath.Join(dir, "coracle-v1.37.tar.gz") {
		t.Errorf("the archive is %s", archive)
	}
	got := unpack(t, archive)
	if len(got) != 4 || got["v1.37/coracle/e2e.log"] != "of e2e.log" || got["v1.37/coracle/junit_01.xml"] != "of junit_01.xml" {
		t.Errorf("it has %q", got)
	}
	var product map[string]string
	if err := yaml.Unmarshal([]byte(got["v1.37/coracle/PRODUCT.yaml"]), &product); err != nil {
		t.Fatal(err)
	}
	want := []string{"vendor", "website_url", "product_logo_url", "contact_email_address"}
	if !slices.Equal(missing, want) {
		t.Errorf("missing are %s", missing)
	}
	for _, field := range []string{
		"vendor", "name", "version", "website_url", "repo_url", "documentation_url", "product_logo_url", "type", "description", "contact_email_address",
	} {
		value, ok := product[field]
		if !ok || strings.HasPrefix(value, Placeholder) != slices.Contains(want, field) {
			t.Errorf("%s is %q, %v", field, value, ok)
		}
	}
	if product["version"] != r.Version || product["type"] != "distribution" {
		t.Errorf("the product is %q", product)
	}
	readme := got["v1.37/coracle/README.md"]
	if !strings.Contains(readme, "coracle conformance --image 'registry.k8s.io/conformance:v1.37.1'\n") || !strings.Contains(readme, "420") ||
		strings.Contains(readme, "Not a run") {
		t.Errorf("README.md is\n%s", readme)
	}
	if info, err := os.Stat(filepath.Join(r.Dir(dir), "PRODUCT.yaml")); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestPackOther: of another product coracle knows next to nothing, and a part of the tests is no certificate.
func TestPackOther(t *testing.T) {
	r := Run{Version: "v1.36.0-rc.1", Focus: "it's", Skip: "x", Parallel: 2}
	_, archive, missing := pack(t, r, Summary{Passed: 1})
	if len(missing) != 9 || filepath.Base(archive) != "product-v1.36.tar.gz" {
		t.Errorf("missing are %s; the archive is %s", missing, archive)
	}
	readme := unpack(t, archive)["v1.36/product/README.md"]
	if !strings.Contains(readme, `--focus 'it'\''s' --skip 'x' --parallel 2`) || !strings.Contains(readme, "Not a run for a certificate") {
		t.Errorf("README.md is\n%s", readme)
	}
}

func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o644 {
			t.Errorf("%s has mode %o: %v", h.Name, h.Mode, err)
		}
		out[h.Name] = string(data)
	}
}

// TestFilledIn: what a person has filled in is kept, but for the version, and packed. A file that nobody has touched is made anew.
func TestFilledIn(t *testing.T) {
	r := Run{Version: "v1.37.1+coracle.4"}
	dir, _, _ := pack(t, r, Summary{Passed: 1})
	file := filepath.Join(r.Dir(dir), "PRODUCT.yaml")
	r.Version = "v1.37.2+coracle.5"
	again := func() (map[string]string, []string) {
		archive, missing, err := r.Pack(dir, Summary{Passed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return unpack(t, archive), missing
	}
	fresh, err := r.newProduct()
	if err != nil {
		t.Fatal(err)
	}
	if files, missing := again(); files["v1.37/coracle/PRODUCT.yaml"] != string(fresh) || len(missing) != 4 {
		t.Errorf("an untouched file became %s; missing are %s", files["v1.37/coracle/PRODUCT.yaml"], missing)
	}
	filled := "# ours\nvendor: Somebody Ltd.\nversion: v1.37.0\nwebsite_url: 'FILL IN: page about the product'\n"
	if err := os.WriteFile(file, []byte(filled), 0o644); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(filled, "v1.37.0", r.Version, 1)
	if files, missing := again(); files["v1.37/coracle/PRODUCT.yaml"] != want || !slices.Equal(missing, []string{"website_url"}) {
		t.Errorf("it became %s; missing are %s", files["v1.37/coracle/PRODUCT.yaml"], missing)
	}
	if err := os.WriteFile(file, []byte("vendor: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Prepare(dir); err == nil || !strings.Contains(err.Error(), "mend or remove it") {
		t.Errorf("with a broken file: %v", err)
	}
}

// TestCode: a runner that failed makes no run for a certificate.
func TestCode(t *testing.T) {
	r := Run{Version: "v1.37.1", Focus: CertifiedFocus}
	if why := r.Unfit(Summary{Passed: 1}); why != "" {
		t.Errorf("a good run is unfit: %s", why)
	}
	if r.Code = 1; r.Unfit(Summary{Passed: 1}) == "" {
		t.Error("a run that failed is fit")
	}
}

// TestRelease: a version that could do harm in a path or in the README's commands is none.
func TestRelease(t *testing.T) {
	for version, want := range map[string]string{
		"v1.37.1+coracle.4": "v1.37.1", "v1.37.1": "v1.37.1", "v1.38.0-beta.2.14+abc-dirty": "v1.38.0-beta.2", "v1.33.4-gke.134000": "v1.33.4", "v1.37": "",
		"v1.37.1+../../x": "", "v1.37.1 ; reboot": "", "v1.37.1+$(reboot)": "", "": "", "v1.37.1+a\nb": "", "v1.37.1+" + strings.Repeat("a", 61): "",
	} {
		if got := (Run{Version: version}).Release(); got != want {
			t.Errorf("%q is of %q, want %q", version, got, want)
		}
	}
}

// TestPrepare: results of a former run do not pass for those of one that fails.
func TestPrepare(t *testing.T) {
	r := Run{Version: "v1.37.1"}
	dir, _, _ := pack(t, r, Summary{})
	if err := r.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(r.Dir(dir), JUnit), filepath.Join(r.Dir(dir), "README.md"), filepath.Join(dir, "product-v1.37.tar.gz")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the former %s is still there", filepath.Base(path))
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Prepare(file); err == nil || !strings.Contains(err.Error(), "choose another --output") {
		t.Errorf("a file as directory: %v", err)
	}
}
