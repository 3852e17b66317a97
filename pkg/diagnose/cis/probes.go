package cis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// condition decides about the value of a flag, and whether it is set.
type condition func(value string, set bool) bool

func given(value string, set bool) bool { return set && value != "" }
func unset(_ string, set bool) bool     { return !set }

func is(want string) condition {
	return func(value string, set bool) bool { return set && value == want }
}

// truth compares a flag that is true or false, in any form that upstream accepts.
func truth(want bool) condition {
	return func(value string, set bool) bool {
		got, err := strconv.ParseBool(value)
		return set && err == nil && got == want
	}
}

// gate accepts a list of feature gates in which one is enabled, or not mentioned and enabled by default, as beta.
func gate(name string) condition {
	return func(value string, _ bool) bool {
		enabled, all := "true", ""
		for one := range strings.SplitSeq(value, ",") {
			key, state, _ := strings.Cut(strings.TrimSpace(one), "=")
			switch key[strings.LastIndex(key, ":")+1:] { // after the name of a component
			case name:
				return truth(true)(state, true)
			case "AllBeta":
				all = state
			}
		}
		return truth(true)(cmp.Or(all, enabled), true)
	}
}

func has(word string) condition {
	return func(value string, set bool) bool { return set && slices.Contains(strings.Split(value, ","), word) }
}

func lacks(word string) condition {
	return func(value string, _ bool) bool { return !slices.Contains(strings.Split(value, ","), word) }
}

func atLeast(least int) condition {
	return func(value string, _ bool) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= least
	}
}

// flag compares one flag of a part, which is its evidence.
func flag(part, name string, ok condition) probe {
	return func(m *Machine) verdict {
		s, started := m.Parts[part]
		if !started {
			return m.absent(part)
		}
		value, set := s.Flag(name)
		if slices.Contains([]string{"authorization-mode", "enable-admission-plugins", "disable-admission-plugins", "tls-cipher-suites", "feature-gates"}, name) {
			value = joined(s, name)
		}
		evidence := fmt.Sprintf("%s --%s=%s", part, name, value)
		if !set {
			evidence = fmt.Sprintf("%s has no flag --%s", part, name)
		}
		return passes(ok(value, set), evidence)
	}
}

// joined returns all values of a flag for a list, to which each occurrence adds.
func joined(s state.Settings, name string) string {
	var all []string
	for _, kv := range s.Flags {
		if kv[0] == name {
			all = append(all, kv[1])
		}
	}
	return strings.Join(all, ",")
}

// byDefault compares a flag for which upstream's default is good too.
func byDefault(part, name string, ok condition, reason string) probe {
	return func(m *Machine) verdict {
		v := flag(part, name, func(value string, set bool) bool { return !set || ok(value, set) })(m)
		if _, set := m.Parts[part].Flag(name); v.result == Pass && !set {
			v.reason = reason
		}
		return v
	}
}

// orFile compares a field of the file that a part was given with --config, in place of a flag, which the part ignores then.
func orFile(part, field string, ok condition, p probe) probe {
	return func(m *Machine) verdict {
		path, set := m.Parts[part].Flag("config")
		if !set || path == "" {
			return p(m)
		}
		value, set, err := fieldOf(path, field)
		switch {
		case err != nil:
			return verdict{Fail, err.Error(), part + " has its settings from this file, and not from flags"}
		case !set:
			return passes(ok("", false), path+" has no "+field)
		}
		return passes(ok(value, true), fmt.Sprintf("%s: %s: %s", path, field, value))
	}
}

// fieldOf returns a top field of a file in YAML, and whether it is there.
func fieldOf(path, field string) (value string, set bool, err error) {
	var tree map[string]any
	if err := readYAML(path, &tree); err != nil {
		return "", false, err
	}
	if tree[field] == nil {
		return "", false, nil
	}
	return fmt.Sprint(tree[field]), true, nil
}

func readYAML(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// both joins probes: all must pass.
func both(all ...probe) probe {
	return func(m *Machine) (sum verdict) {
		var evidence []string
		for i, p := range all {
			v := p(m)
			evidence = append(evidence, v.evidence)
			if i == 0 || v.result != Pass {
				sum.result, sum.reason = v.result, v.reason
			}
			if v.result == Fail {
				break
			}
		}
		sum.evidence = strings.Join(evidence, ", ")
		return sum
	}
}

// unlessSocket is a probe of TLS between two programs of this machine, which need none if they talk over a unix socket.
func unlessSocket(part, urls string, p probe) probe {
	return func(m *Machine) verdict {
		s, started := m.Parts[part]
		if !started {
			return m.absent(part)
		}
		value, _ := s.Flag(urls)
		evidence := fmt.Sprintf("%s --%s=%s", part, urls, value)
		for _, url := range strings.Split(value, ",") {
			path, ok := strings.CutPrefix(url, "unix://")
			if !ok {
				return p(m)
			}
			dir := stat(filepath.Dir(path))
			evidence += ", " + dir.String()
			if dir.err != nil || dir.mode&^0o700 != 0 {
				return verdict{Fail, evidence, "only the control plane's user may reach the socket"}
			}
		}
		return verdict{NotApplicable, evidence, "etcd's clients use a unix socket that only root and the control plane's user can reach; nothing listens on the network"}
	}
}

// kubelet compares a setting of the kubelet's whole configuration.
func kubelet(ok func(any) bool, path ...string) probe {
	return func(m *Machine) verdict {
		s, started := m.Parts["kubelet"]
		switch {
		case !started:
			return m.absent("kubelet")
		case !json.Valid(s.Config):
			return verdict{Fail, "the kubelet has reported no configuration", "restart coracle"}
		}
		value := m.kubelet(path...)
		evidence := fmt.Sprintf("kubelet %s: %v", strings.Join(path, "."), value)
		if value == nil {
			evidence = fmt.Sprintf("kubelet %s is not set", strings.Join(path, "."))
		}
		return passes(ok(value), evidence)
	}
}
