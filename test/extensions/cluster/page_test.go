package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const example = "# A page\n\n## One\n\n```yaml\nkind: A\n```\n\n```go\nfunc f() {}\n```\n\n```console\n$ first\na …  b\n$ second\n```\n\n## Two\n\n```console\n$ third\n```\n"

// TestCheck: a page must show the folder's files as they are.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		yaml, code, want string
	}{
		"the same":       {"kind: A\n", "package p\n\nfunc f() {}\n", ""},
		"other YAML":     {"kind: B\n", "package p\n\nfunc f() {}\n", "no file in the folder"},
		"other Go":       {"kind: A\n", "package p\n\nfunc g() {}\n", "no file in the folder"},
		"more than that": {"kind: A\nname: b\n", "package p\n\nfunc f() {}\n", "does not show the file"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"a.yaml": test.yaml, "a.go": test.code} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := (&page{"page.md", example}).check(dir)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSteps: the commands of a page are those below a heading.
func TestSteps(t *testing.T) {
	p := &page{"page.md", example}
	one, err := p.steps("One")
	if err != nil || len(one) != 2 || one[0].command != "first" || one[1].command != "second" || one[1].want != "" {
		t.Errorf("below One there are %+v (%v)", one, err)
	}
	if !matches("a very long \t b\n", one[0].want) || matches("a b c", one[0].want) {
		t.Errorf("what matches %q is wrong", one[0].want)
	}
	if _, err := p.steps("Three"); err == nil {
		t.Error("a heading that is not there has steps")
	}
}
