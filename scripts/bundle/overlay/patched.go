package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// change is a text in a file of a module that must be there exactly once, and what replaces it.
type change struct{ file, old, new string }

// patch is how a module's sources are changed.
type patch struct {
	module  string
	changes []change
	added   map[string]string // the name of each new file, and the file under files/ that it is
}

// patches are the changed modules, by the names of their directories.
var patches = map[string]patch{
	// runc keeps the programs of seccomp profiles in files. Without that each process of a container, also that of a probe, takes libseccomp some
	// 25 ms, which is half of what runc takes.
	"runc": {"github.com/opencontainers/runc", []change{
		{"libcontainer/configs/config.go", "json:\"listener_metadata,omitempty\"`\n", "json:\"listener_metadata,omitempty\"`\n\tProgram []byte `json:\"program,omitempty\"`\n"},
		{"libcontainer/container_linux.go", "\t\tConfig:           c.config,\n", "\t\tConfig:           withSeccompProgram(c.config, c.stateDir),\n"},
		{"libcontainer/seccomp/seccomp_linux.go", "func InitSeccomp(config *configs.Seccomp) (int, error) {\n", `func InitSeccomp(config *configs.Seccomp) (int, error) {
	if config != nil && len(config.Program) > 0 {
		return patchbpf.Load(config.Program)
	}
	return withFilter(config, patchbpf.PatchAndLoad)
}

func withFilter(config *configs.Seccomp, use func(*configs.Seccomp, *libseccomp.ScmpFilter) (int, error)) (int, error) {
`},
		{"libcontainer/seccomp/seccomp_linux.go", "err := patchbpf.PatchAndLoad(config, filter)", "err := use(config, filter)"},
	}, map[string]string{
		"libcontainer/coracle.go":                  "files/runc/libcontainer.go.txt",
		"libcontainer/seccomp/coracle.go":          "files/runc/seccomp.go.txt",
		"libcontainer/seccomp/patchbpf/coracle.go": "files/runc/patchbpf.go.txt",
	}},
	// A pipe takes no memory while it is silent.
	"fifo": {"github.com/containerd/fifo", nil, map[string]string{"coracle.go": "files/fifo/fifo.go.txt"}},
}

// WritePatched writes a module's changed sources to out/NAME, and out/go.mod, a copy of that in the directory module with which they are used.
// (The go command's overlays cannot replace files in the module cache.)
func WritePatched(name, module, out string) error {
	p, ok := patches[name]
	if !ok {
		return fmt.Errorf("there is no changed module %s", name)
	}
	sources, err := p.sources(module)
	if err != nil {
		return err
	}
	place, err := filepath.Rel(module, filepath.Join(out, name)) // relative, because the program's build information has it
	if err != nil {
		return err
	}
	for from, to := range map[string]string{"go.mod": "../go.mod", "go.sum": "../go.sum"} {
		if sources[to], err = os.ReadFile(filepath.Join(module, from)); err != nil {
			return err
		}
	}
	sources["../go.mod"] = fmt.Appendf(sources["../go.mod"], "\nreplace %s => ./%s\n", p.module, place)
	if err := os.RemoveAll(filepath.Join(out, name)); err != nil { // which may have files of another version
		return err
	}
	for file, data := range sources {
		if err := writeIfChanged(filepath.Join(out, name, file), data); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the files of a patched module, which it downloads with the version and checksum that go.mod in dir has.
func (p patch) sources(dir string) (map[string][]byte, error) {
	download := exec.Command("go", "mod", "download", "-json", p.module) // go list would tell nothing of a module that is not there yet
	download.Dir, download.Stderr = dir, os.Stderr
	data, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", p.module, err)
	}
	var upstream struct{ Dir string }
	if err := json.Unmarshal(data, &upstream); err != nil {
		return nil, err
	}
	sources := map[string][]byte{}
	err = filepath.WalkDir(upstream.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(upstream.Dir, path)
		sources[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range p.changes {
		if sources[c.file], err = c.apply(sources[c.file]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.module, err)
		}
	}
	for name, from := range p.added {
		if sources[name], err = files.ReadFile(from); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

func (c change) apply(data []byte) ([]byte, error) {
	if n := bytes.Count(data, []byte(c.old)); n != 1 {
		return nil, fmt.Errorf("%s has %d times %q, not once: see what has changed upstream", c.file, n, strings.TrimSpace(c.old))
	}
	return bytes.Replace(data, []byte(c.old), []byte(c.new), 1), nil
}
