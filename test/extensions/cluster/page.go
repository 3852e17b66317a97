package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is a page of docs/extending.
type page struct{ path, text string }

// block matches a block of code: its language and its text.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// readPage reads the page of a subject, from the subject's folder.
func readPage(subject string) (*page, error) {
	path := filepath.Join("../../../docs/extending", subject+".md")
	data, err := os.ReadFile(path)
	return &page{path, string(data)}, err
}

// check compares the page with a folder: each block that is not a session of commands is a file there, or for Go a part of one, and each YAML file is
// a block.
func (p *page) check(dir string) error {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".yaml", ".go", ".json", ".toml", ".conflist"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		return err
	}
	var wrong []error
	shown := map[string]bool{}
	for _, found := range block.FindAllStringSubmatch(p.text, -1) {
		language, text := found[1], found[2]
		if language == "console" {
			continue
		}
		known := false
		for path, content := range files {
			if content == text || language == "go" && filepath.Ext(path) == ".go" && strings.Contains(content, text) {
				known, shown[path] = true, true
			}
		}
		if !known {
			wrong = append(wrong, fmt.Errorf("%s: no file in the folder of the example is this block of code:\n%s", p.path, text))
		}
	}
	for path := range files {
		if filepath.Ext(path) == ".yaml" && !shown[path] {
			wrong = append(wrong, fmt.Errorf("%s does not show the file %s", p.path, path))
		}
	}
	return errors.Join(wrong...)
}

// step is a command of a page, and what the page says that it prints.
type step struct{ command, want string }

// steps returns the commands below a heading, up to the next heading.
func (p *page) steps(heading string) ([]step, error) {
	_, section, ok := strings.Cut(p.text, "\n## "+heading+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no heading %q", p.path, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []step
	for _, found := range block.FindAllStringSubmatch(section, -1) {
		if found[1] != "console" {
			continue
		}
		for _, part := range strings.Split("\n"+found[2], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			all = append(all, step{command, want})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no commands below %q", p.path, heading)
	}
	return all, nil
}

var space = regexp.MustCompile(`[ \t]+`)

// matches compares what a command printed with a page: spaces count as one, and … stands for any text.
func matches(got, want string) bool {
	got, want = strings.TrimSpace(space.ReplaceAllString(got, " ")), strings.TrimSpace(space.ReplaceAllString(want, " "))
	pattern := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$"
	return regexp.MustCompile(pattern).MatchString(got)
}

// Play runs the commands of the page below a heading, in the example's folder and the namespace. A command without output on the page must succeed.
// For others, what they print must be what the page says; as clusters learn of changes by and by, they are tried again for some time.
// NAMESPACE is the namespace; variables are further ones, as NAME=VALUE.
func (s Space) Play(t *testing.T, heading string, variables ...string) {
	t.Helper()
	steps, err := s.page.steps(heading)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		Eventually(t, func() error {
			cmd := s.Command(t.Context(), "sh", "-c", step.command)
			cmd.Env = append(append(cmd.Env, variables...), "KUBECONFIG="+s.kubeconfig, "NAMESPACE="+s.Namespace)
			out, err := cmd.CombinedOutput()
			if step.want == "" && err != nil {
				return fmt.Errorf("%s: %w: %s", step.command, err, out)
			}
			if step.want != "" && !matches(string(out), step.want) {
				return fmt.Errorf("%s prints\n%s\nbut the page says\n%s", step.command, bytes.TrimSpace(out), step.want)
			}
			return nil
		})
	}
}
