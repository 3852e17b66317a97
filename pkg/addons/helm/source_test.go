package helm

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/chartfile"
)

func TestLocalCharts(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "x.tgz")
	for path, data := range map[string][]byte{filepath.Join(dir, "web.tgz"): simple(t, "1.0.0"), outside: simple(t, "1.0.0")} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "large.tgz"), make([]byte, limit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link.tgz")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ chart, want string }{
		{"charts/web.tgz", ""},
		{dir + "/web.tgz", ""},
		{"file://" + dir + "/web.tgz", ""},
		{"https://%{KUBERNETES_API}%/static/charts/web.tgz", ""},
		{"charts/none.tgz", "there is no " + dir + "/none.tgz on this server"},
		{"charts/large.tgz", "more than 16 MiB"},
		{outside, "is outside of"},
		{"file://" + outside, "is outside of"},
		{"charts/../x.tgz", "escapes"},
		{"charts/link.tgz", "escapes"},
	} {
		s := source{spec: chartSpec{Chart: tt.chart}, charts: dir}
		_, err := s.fetch(t.Context(), access{})
		content, err2 := s.content()
		switch {
		case tt.want == "" && (err != nil || err2 != nil || content == ""):
			t.Errorf("%s: %v, %v, contents %q", tt.chart, err, err2, content)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %s", tt.chart, err, tt.want)
		}
	}
}

func TestFetchComplains(t *testing.T) {
	encode := func(files map[string]string) string {
		return base64.StdEncoding.EncodeToString(chartfile.Pack(t, "web", files))
	}
	chart := func(more string) map[string]string {
		return map[string]string{"Chart.yaml": "name: web\nversion: 1.0.0\n" + more}
	}
	for _, tt := range []struct {
		name string
		spec chartSpec
		want string
	}{
		{"good", chartSpec{ChartContent: encode(chart("apiVersion: v2"))}, ""},
		{"broken into lines", chartSpec{ChartContent: strings.Join(strings.SplitAfter(encode(chart("apiVersion: v2")), "A"), "\n")}, ""},
		{"no base64", chartSpec{ChartContent: "?"}, "chartContent is no base64"},
		{"no archive", chartSpec{ChartContent: "AAAA"}, "reading the chart's archive"},
		{"library", chartSpec{ChartContent: encode(chart("apiVersion: v2\ntype: library"))}, "is a library"},
		{"without what it needs", chartSpec{ChartContent: encode(chart("apiVersion: v2\ndependencies: [{name: db, version: 1.0.0, repository: 'https://x'}]"))},
			"web needs db, which is not in its archive"},
		{"no repository", chartSpec{Chart: "web"}, "without repo"},
		{"odd scheme", chartSpec{Chart: "ftp://u:hunter2@x/web.tgz"}, "neither https, http nor oci"},
		{"odd repository", chartSpec{Chart: "web", Repo: "hunter2"}, "repo is no address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := source{spec: tt.spec, charts: "/charts"}.fetch(t.Context(), access{})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("error is %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}
