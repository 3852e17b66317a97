// Package overlay makes upstream commands that exist only as "package main" callable from coracle's multi-call
// executables without a copy of their code in the tree. It reads their sources from the module cache (pinned by
// go.sum), renames the package and its main function, and writes the result with a map for `go build -overlay`. During
// a build the sources appear as packages of coracle's module.
package overlay

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Command is one upstream command.
type Command struct {
	Import string // its import path upstream
	Dir    string // its place in coracle's module, relative to the root; the last element is the package's name
	// Instead is a package of coracle's for each import of the command that it takes the place of.
	Instead map[string]string
}

// Commands are all upstream commands that are compiled into coracle's executables.
var Commands = []Command{
	{"github.com/containernetworking/plugins/plugins/main/bridge", "cmd/coracle-cni/upstream/bridge", map[string]string{
		"github.com/containernetworking/plugins/pkg/ipam": "github.com/coracle-dev/coracle/cmd/coracle-cni/leased",
	}},
	{"github.com/containernetworking/plugins/plugins/main/loopback", "cmd/coracle-cni/upstream/loopback", nil},
	{"github.com/containernetworking/plugins/plugins/ipam/host-local", "cmd/coracle-cni/upstream/hostlocal", nil},
	{"github.com/containernetworking/plugins/plugins/meta/portmap", "cmd/coracle-cni/upstream/portmap", nil},
	{"github.com/containernetworking/plugins/plugins/meta/bandwidth", "cmd/coracle-cni/upstream/bandwidth", nil},
	{"sigs.k8s.io/cri-tools/cmd/crictl", "cmd/coracle-core/upstream/crictl", map[string]string{
		"sigs.k8s.io/cri-tools/pkg/framework": "github.com/coracle-dev/coracle/cmd/coracle-core/framework",
	}},
}

// replaced are files of coracle that a full build replaces with the ones under files/, which call the commands. The
// files in the tree report that the build lacks the command.
var replaced = map[string]string{
	"cmd/coracle-cni/upstream.go": "files/cni.go.txt",
	"cmd/coracle-core/crictl.go":  "files/crictl.go.txt",
}

//go:embed files
var files embed.FS

// Write generates everything under out and returns the path of the overlay map. root is the root of coracle's module.
// The environment's GOOS, GOARCH and CGO_ENABLED select the sources.
func Write(root, out string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(name string, data []byte) error {
		path := filepath.Join(out, name)
		overlay.Replace[filepath.Join(root, name)] = path
		return writeIfChanged(path, data)
	}
	for _, c := range Commands {
		sources, err := c.sources(root)
		if err != nil {
			return "", fmt.Errorf("taking in %s: %w", c.Import, err)
		}
		for name, data := range sources {
			if err := put(filepath.Join(c.Dir, name), data); err != nil {
				return "", err
			}
		}
	}
	for name, from := range replaced {
		data, err := files.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := put(name, data); err != nil {
			return "", err
		}
	}
	data, err := json.MarshalIndent(overlay, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "overlay.json")
	return path, writeIfChanged(path, data)
}

// sources returns the command's rewritten files, by name.
func (c Command) sources(root string) (map[string][]byte, error) {
	list := exec.Command("go", "list", "-mod=readonly", "-json=Dir,GoFiles,EmbedFiles", c.Import)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing its files: %w", err)
	}
	var pkg struct {
		Dir                 string
		GoFiles, EmbedFiles []string
	}
	if err := json.Unmarshal(out, &pkg); err != nil {
		return nil, err
	}
	sources := map[string][]byte{}
	functions := map[string]bool{}
	replaced := map[string]bool{}
	for _, name := range pkg.GoFiles {
		data, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return nil, err
		}
		if sources[name], err = rename(name, data, filepath.Base(c.Dir), functions); err != nil {
			return nil, err
		}
		for from, to := range c.Instead {
			old := fmt.Appendf(nil, "\t%q\n", from)
			if bytes.Contains(sources[name], old) {
				replaced[from] = true
			}
			sources[name] = bytes.ReplaceAll(sources[name], old, fmt.Appendf(nil, "\t%s %q\n", path.Base(from), to))
		}
	}
	if len(replaced) != len(c.Instead) {
		return nil, fmt.Errorf("%d imports are to be replaced, and there are %d: see what has changed upstream", len(c.Instead), len(replaced))
	}
	for _, name := range pkg.EmbedFiles {
		if sources[name], err = os.ReadFile(filepath.Join(pkg.Dir, name)); err != nil {
			return nil, err
		}
	}
	if export := exported(filepath.Base(c.Dir), functions); export != nil {
		sources["coracle_export.go"] = export
	}
	return sources, nil
}

// rename changes the package name of a source file of package main, and exports its main function. It adds the names of
// all functions to functions.
func rename(name string, data []byte, pkg string, functions map[string]bool) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type edit struct {
		at       int
		old, new string
	}
	edits := []edit{{set.Position(file.Name.Pos()).Offset, "main", pkg}}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		functions[f.Name.Name] = true
		if f.Name.Name == "main" {
			edits = append(edits, edit{set.Position(f.Name.Pos()).Offset, "main", "Main"})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.at - a.at }) // from the end, so that offsets stay valid
	for _, e := range edits {
		if !bytes.HasPrefix(data[e.at:], []byte(e.old)) {
			return nil, fmt.Errorf("%s: no %q at offset %d", name, e.old, e.at)
		}
		data = slices.Concat(data[:e.at], []byte(e.new), data[e.at+len(e.old):])
	}
	return data, nil
}

// exported makes a CNI plugin's verbs callable within the process. It returns nil for other commands.
func exported(pkg string, functions map[string]bool) []byte {
	if !functions["cmdAdd"] {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport \"github.com/containernetworking/cni/pkg/skel\"\n", pkg)
	for _, verb := range []string{"Add", "Check", "Del", "Status"} {
		if functions["cmd"+verb] {
			fmt.Fprintf(&b, "\nfunc %s(args *skel.CmdArgs) error { return cmd%s(args) }\n", verb, verb)
		}
	}
	return []byte(b.String())
}

// writeIfChanged keeps the modification times of files that are up to date.
func writeIfChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
