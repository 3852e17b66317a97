package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// flagsCommand shows what the upstream parts were started with.
func flagsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "flags [PART...]",
		Short: "Show the flags and configuration with which each part of Kubernetes runs here",
		Long: `Show the flags and the configuration with which etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
kube-proxy, containerd and flannel run on this machine: coracle's own, with every override in force. The parts report them
when they start; of a coracle that does not run these are the last ones. Settings that are not listed have upstream's
defaults, apart from etcd's log and its addresses for other members. Of the kubelet and containerd, the whole configuration
is shown.

Secrets are removed. It needs root.`,
		Example: `# All parts
coracle config flags

# One of them
coracle config flags kube-apiserver

# Is seccomp on by default?
coracle config flags kubelet -o json | jq .kubelet.config.seccompDefault`,
	}
	here := dirFlags(c)
	output := command.OutputFlag(c, "", "json", "yaml")
	c.ValidArgs = upstreamParts()
	c.RunE = func(c *cobra.Command, names []string) error {
		dirs := here().dirs
		parts, ended, err := effectiveSettings(dirs)
		if err != nil {
			return err
		}
		for _, process := range ended {
			fmt.Fprintf(c.ErrOrStderr(), "process %s does not run, or its parts have not started yet: of these, this is what they were last started with\n", process)
		}
		if len(names) == 0 {
			names = slices.Collect(maps.Keys(parts))
		}
		shown := map[string]effective{}
		for _, name := range names {
			s, ok := parts[name]
			if !ok {
				return exitcode.Usagef("%q does not run on this machine; there are %s", name, strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
			}
			if shown[name], err = newEffective(s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return command.Print(c.OutOrStdout(), *output, shown, func(w io.Writer) error { return writeEffective(w, shown) })
	}
	return c
}

// upstreamParts lists the parts that report their settings, in the order in which they are shown.
func upstreamParts() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "containerd", "flannel"}
}

// effectiveSettings returns what the parts of both child processes were started with. ended are the processes of which these are of an instance
// that has ended.
func effectiveSettings(dirs paths.Dirs) (parts map[string]state.Settings, ended []string, err error) {
	parts = map[string]state.Settings{}
	for _, process := range []string{state.ControlPlane, state.Node} {
		some, running, err := state.ReadSettings(dirs, process)
		if errors.Is(err, fs.ErrPermission) {
			return nil, nil, fmt.Errorf("only root may see how coracle was started: use sudo (%w)", err)
		}
		if err != nil {
			return nil, nil, err
		}
		if len(some) > 0 && !running {
			ended = append(ended, process)
		}
		maps.Copy(parts, some)
	}
	if len(parts) == 0 {
		return nil, nil, errors.New("coracle has not run on this machine since it was booted: start it")
	}
	return parts, ended, nil
}

// effective is how the settings of a part are shown, without secrets.
type effective struct {
	Flags  []string        `json:"flags,omitempty"` // --NAME=VALUE
	Config json.RawMessage `json:"config,omitempty"`
	TOML   string          `json:"toml,omitempty"`
}

func newEffective(s state.Settings) (e effective, err error) {
	var r redact.Redactor
	for _, kv := range s.Flags {
		e.Flags = append(e.Flags, r.String(fmt.Sprintf("--%s=%s", kv[0], r.Value(kv[0], kv[1]))))
	}
	var tree any
	var table map[string]any
	if len(s.Config) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(s.Config))
		decoder.UseNumber()
		if err = decoder.Decode(&tree); err == nil {
			e.Config, err = json.Marshal(r.Value("", tree))
		}
	}
	if s.TOML != "" && err == nil {
		var text []byte
		if err = toml.Unmarshal([]byte(s.TOML), &table); err == nil {
			text, err = toml.Marshal(r.Value("", table))
		}
		e.TOML = string(text)
	}
	if err != nil {
		return effective{}, fmt.Errorf("reading its configuration: %w", err)
	}
	return e, nil
}

// writeEffective writes a section for each part: its flags, one a line, and its configuration.
func writeEffective(w io.Writer, parts map[string]effective) error {
	var b strings.Builder
	for _, name := range upstreamParts() {
		e, ok := parts[name]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", name)
		for _, flag := range e.Flags {
			b.WriteString(flag + "\n")
		}
		if len(e.Config) > 0 {
			text, err := yaml.JSONToYAML(e.Config)
			if err != nil {
				return fmt.Errorf("reading the configuration of %s: %w", name, err)
			}
			b.Write(text)
		}
		b.WriteString(e.TOML + "\n")
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}
