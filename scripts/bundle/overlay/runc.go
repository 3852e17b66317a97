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

// runcModule is the module of runc.
const runcModule = "github.com/opencontainers/runc"

// change is a text in a file of runc's that must be there exactly once, and what replaces it.
type change struct{ file, old, new string }

// runcChanges and runcFiles let runc keep the programs of seccomp profiles in files. Without them each process of a container, also that of
// a probe, takes libseccomp some 25 ms, which is half of what runc takes.
var (
	runcChanges = []change{
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
	}
	runcFiles = map[string]string{
		"libcontainer/coracle.go":                  "files/runc/libcontainer.go.txt",
		"libcontainer/seccomp/coracle.go":          "files/runc/seccomp.go.txt",
		"libcontainer/seccomp/patchbpf/coracle.go": "files/runc/patchbpf.go.txt",
	}
)

// WriteRunc writes runc's sources with the changes to out/runc, and out/go.mod, a copy of module's with which they are used. module is the
// directory of a module that requires runc. (The go command's overlays cannot replace files in the module cache.)
func WriteRunc(module, out string) error {
	download := exec.Command("go", "mod", "download", "-json", runcModule) // go list would tell nothing of a module that is not there yet
	download.Dir, download.Stderr = module, os.Stderr
	data, err := download.Output()
	if err != nil {
		return fmt.Errorf("downloading %s: %w", runcModule, err)
	}
	var upstream struct{ Dir string }
	if err := json.Unmarshal(data, &upstream); err != nil {
		return err
	}
	sources := map[string][]byte{}
	for name, from := range runcFiles {
		if sources[name], err = files.ReadFile(from); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(upstream.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(upstream.Dir, path)
		sources[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range runcChanges {
		if sources[c.file], err = c.apply(sources[c.file]); err != nil {
			return err
		}
	}
	place, err := filepath.Rel(module, filepath.Join(out, "runc")) // relative, because runc's build information has it
	if err != nil {
		return err
	}
	for from, to := range map[string]string{"go.mod": "../go.mod", "go.sum": "../go.sum"} {
		if sources[to], err = os.ReadFile(filepath.Join(module, from)); err != nil {
			return err
		}
	}
	sources["../go.mod"] = fmt.Appendf(sources["../go.mod"], "\nreplace %s => %s\n", runcModule, place)
	if err := os.RemoveAll(filepath.Join(out, "runc")); err != nil { // which may have files of another version
		return err
	}
	for name, data := range sources {
		if err := writeIfChanged(filepath.Join(out, "runc", name), data); err != nil {
			return err
		}
	}
	return nil
}

func (c change) apply(data []byte) ([]byte, error) {
	if n := bytes.Count(data, []byte(c.old)); n != 1 {
		return nil, fmt.Errorf("%s of %s has %d times %q, not once: see what has changed upstream", c.file, runcModule, n, strings.TrimSpace(c.old))
	}
	return bytes.Replace(data, []byte(c.old), []byte(c.new), 1), nil
}
