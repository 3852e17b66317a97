package config

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

func TestWriteTable(t *testing.T) {
	_, settings, err := inspect(Server, []string{"--node-name=a", "--debug"}, []string{"CORACLE_TLS_SAN=b,c"}, edge())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteTable(&b, settings); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/table.golden.txt", b.String())
}

// TestWriteYAML: what is printed is a file that gives the same configuration.
func TestWriteYAML(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.good.yaml")
	for _, file := range files {
		role := roleOf(file)
		want, settings, err := inspect(role, []string{"--config", file}, nil, edge())
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteYAML(&b, settings); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(write(t, map[string]string{"config.yaml": b.String()}), "config.yaml")
		got, _, err := resolve(role, []string{"--config", path}, nil, edge(), nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", file, err, b.String())
		}
		got.Dirs.Config = want.Dirs.Config // the directory of the file
		want.Remarks = nil                 // they are about how it was written
		want.Node.Sources, want.API.AdvertiseNode = nil, false
		a, _ := json.Marshal(want)
		c, _ := json.Marshal(got)
		if !bytes.Equal(a, c) {
			t.Errorf("%s: got\n%s\nwant\n%s\nby\n%s", file, c, a, b.String())
		}
	}
}

// TestExample: the example is a good file as it is, and with every line that has a default of its own uncommented.
func TestExample(t *testing.T) {
	for _, role := range []Role{Server, Agent} {
		text, err := Example(role)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/example-"+string(role)+".golden.yaml", text)
		lines := strings.Split(text, "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasSuffix(l, `: ""`) })
		all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(strings.Join(lines, "\n"), "$1")
		dir := write(t, map[string]string{"example.yaml": text, "all.yaml": all})
		for _, name := range []string{"example.yaml", "all.yaml"} {
			args := []string{"--config", filepath.Join(dir, name)}
			if role == Agent {
				args = append(args, "--server=a")
			}
			if _, _, err := resolve(role, args, nil, edge(), nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
