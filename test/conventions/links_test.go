package conventions

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are all Markdown files of the documentation, by path from the top.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(top, path)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(data)
		}
	}
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fenced  = regexp.MustCompile("(?s)```.*?```")
	// unnamed are signs that are not in the name of a heading.
	unnamed = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// anchors are the names under which the headings of a document can be linked to, as GitHub makes them.
func anchors(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(unnamed.ReplaceAllString(m[1], ""))
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// TestLinks: what a document links to in this repository is there.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(top, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if other, ok := all[path]; ok && anchor != "" && !slices.Contains(anchors(other), anchor) {
				t.Errorf("%s links to %s: no heading of %s is called that", name, m[1], path)
			}
		}
	}
}

// codePath is a file or directory of this repository, as documents name it.
var codePath = regexp.MustCompile("`((?:cmd|pkg|manifests|test|scripts)/[A-Za-z0-9_./-]+)`")

// TestPathsExist: the files and directories that a document names exist.
func TestPathsExist(t *testing.T) {
	for name, text := range pages(t) {
		for line := range strings.Lines(text) {
			if name == filepath.Join("docs", "upstream.md") && strings.Count(line, "|") > 3 {
				line = strings.Split(line, "|")[3] // the other columns name upstream's files
			}
			for _, m := range codePath.FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join(top, m[1])); err != nil && !strings.HasSuffix(m[1], "/NAME") {
					t.Errorf("%s names %s, which does not exist", name, m[1])
				}
			}
		}
	}
}

// TestDocumentsAreFound: every document can be reached by links from the README.
func TestDocumentsAreFound(t *testing.T) {
	all := pages(t)
	found := map[string]bool{"README.md": true}
	for queue := []string{"README.md"}; len(queue) > 0; queue = queue[1:] {
		for _, m := range link.FindAllStringSubmatch(all[queue[0]], -1) {
			target, _, _ := strings.Cut(m[1], "#")
			path := filepath.Join(filepath.Dir(queue[0]), target)
			if _, ok := all[path]; ok && !found[path] {
				found[path] = true
				queue = append(queue, path)
			}
		}
	}
	for name := range all {
		if !found[name] {
			t.Errorf("nothing links to %s", name)
		}
	}
}

// variable matches the names of coracle's environment variables.
var variable = regexp.MustCompile(`\b(?:INSTALL_)?CORACLE_[A-Z][A-Z_]*[A-Z]\b`)

// TestVariablesAreDocumented: every environment variable that the product and install.sh read is in the reference or,
// if it is a setting, in the configuration.
func TestVariablesAreDocumented(t *testing.T) {
	all := pages(t)
	known := append([]string{"CORACLE_NAME_IN_CAPITALS"}, variable.FindAllString(all["docs/reference.md"]+all["docs/configuration.md"], -1)...)
	for _, setting := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` ").FindAllStringSubmatch(all["docs/configuration.md"], -1) {
		known = append(known, "CORACLE_"+strings.ToUpper(strings.ReplaceAll(setting[1], "-", "_")))
	}
	texts := map[string]string{}
	for _, s := range product(t) {
		if !strings.HasPrefix(s.path, "test/") {
			texts[s.path] = s.text
		}
	}
	script, err := os.ReadFile(filepath.Join(top, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	texts["install.sh"] = string(script)
	for path, text := range texts {
		for _, name := range variable.FindAllString(text, -1) {
			if !slices.Contains(known, name) && !strings.HasPrefix(name, "CORACLE_TEST_") {
				t.Errorf("%s: %s is in neither docs/reference.md nor docs/configuration.md", path, name)
			}
		}
	}
}
