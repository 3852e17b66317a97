package install

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// file is a file to write.
type file struct {
	path string
	data []byte
	mode os.FileMode
	// extra is true for files that are not essential: if they cannot be written, that is only reported.
	extra bool
}

// unit returns the service for the init system.
func (w Spec) unit() initsystem.Unit {
	return initsystem.Unit{
		Name:        w.Service,
		Description: "Kubernetes (coracle " + string(w.Role) + ")",
		Exec:        append([]string{w.binary(), string(w.Role)}, w.Args...),
		Before:      upgrade.Before(w.Config.Dirs.Data),
		Ready:       []string{w.binary(), "wait", "--quiet", "--data-dir", w.Config.Dirs.Data, "--run-dir", w.Config.Dirs.Run},
		Environment: EnvironmentFile(w.Service),
		Mounts:      []string{w.Config.Dirs.Data, w.Config.Dirs.Kubelet},
	}
}

func (w Spec) binary() string { return filepath.Join(w.BinDir, "coracle") }

// EnvironmentFile returns the path of the file with a service's variables. It does not depend on the configuration directory.
func EnvironmentFile(service string) string { return filepath.Join("/etc/coracle", service+".env") }

// environment returns the file with the service's variables.
func (w Spec) environment() file {
	return file{path: EnvironmentFile(w.Service), data: initsystem.Environment(w.Environment), mode: 0o600}
}

// Names of links to the executable: tools that the machine lacks, and coracle's own commands.
var (
	tools    = []string{"kubectl", "crictl", "ctr"}
	commands = []string{"coracle-killall", "coracle-uninstall"}
)

// links returns the links to make, and the tools that the machine has already.
func (in *Installer) links(w Spec) (links []Link, taken []string) {
	for _, name := range tools {
		path := filepath.Join(w.BinDir, name)
		if other := in.find(name); other != "" && other != path {
			taken = append(taken, other)
			continue
		}
		if _, err := os.Lstat(in.at(path)); err == nil && !in.ourLink(path) {
			taken = append(taken, path)
			continue
		}
		links = append(links, Link{Path: path, Target: "coracle"})
	}
	for _, name := range commands {
		links = append(links, Link{Path: filepath.Join(w.BinDir, name), Target: "coracle"})
	}
	return links, taken
}

// ourLink reports whether a path is a link to the executable beside it.
func (in *Installer) ourLink(path string) bool {
	target, err := os.Readlink(in.at(path))
	return err == nil && (target == "coracle" || target == filepath.Join(filepath.Dir(path), "coracle"))
}

// find returns the path of a command in PATH; "" if there is none.
func (in *Installer) find(name string) string {
	look := in.Look
	if look == nil {
		look = exec.LookPath
	}
	path, err := look(name)
	if err != nil {
		return ""
	}
	return path
}

// shells has the directories in which shells look for completions that are not the distribution's, and the files' content.
// The files ask the executable at the first completion, so that they fit every version.
var shells = []struct{ shell, dir, name, text string }{
	{"bash", "/usr/local/share/bash-completion/completions", "%", ". <(% completion bash)\n"},
	{"zsh", "/usr/local/share/zsh/site-functions", "_%", "#compdef %\n. <(% completion zsh)\n_% \"$@\"\n"},
	{"fish", "/usr/local/share/fish/vendor_completions.d", "%.fish", "% completion fish | source\n"},
}

// completions returns completion files for the shells of the machine: for coracle, and for kubectl if it is coracle's link.
func (in *Installer) completions(links []Link) (files []file) {
	commands := []string{"coracle"}
	for _, l := range links {
		if filepath.Base(l.Path) == "kubectl" {
			commands = append(commands, "kubectl")
		}
	}
	for _, s := range shells {
		if in.find(s.shell) == "" {
			continue
		}
		for _, command := range commands {
			fill := func(text string) string { return strings.ReplaceAll(text, "%", command) }
			files = append(files, file{path: filepath.Join(s.dir, fill(s.name)), data: []byte(fill(s.text)), mode: 0o644, extra: true})
		}
	}
	return files
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// tokenFlags are flags with secret values, and the variables that replace them: every user can read a unit file.
var tokenFlags = []struct{ flag, short, variable string }{
	{"--token", "-t", "CORACLE_TOKEN"},
	{"--agent-token", "", "CORACLE_AGENT_TOKEN"},
}

// HideTokens removes the tokens from a role's arguments and returns them as variables.
func HideTokens(args []string) (rest, variables []string) {
	rest = []string{}
next:
	for i := 0; i < len(args); i++ {
		for _, t := range tokenFlags {
			value, attached := strings.CutPrefix(args[i], t.flag+"=")
			if !attached && t.short != "" && len(args[i]) > len(t.short) {
				value, attached = strings.CutPrefix(args[i], t.short)
				value = strings.TrimPrefix(value, "=")
			}
			switch {
			case attached:
				variables = append(variables, t.variable+"="+value)
				continue next
			case i+1 < len(args) && (args[i] == t.flag || t.short != "" && args[i] == t.short):
				i++
				variables = append(variables, t.variable+"="+args[i])
				continue next
			}
		}
		rest = append(rest, args[i])
	}
	return rest, variables
}

// proxies are variables besides coracle's own that the service gets from the environment of the installer.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"}

// Environment returns those of the installer's variables that the service gets.
func Environment(environ []string) (out []string) {
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && (config.IsVariable(name) || slices.Contains(proxies, name)) {
			out = append(out, pair)
		}
	}
	return out
}
