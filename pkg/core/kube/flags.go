package kube

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Flags are settings of an upstream part: names without dashes, and values.
type Flags [][2]string

// String has one flag a line, as on a command line.
func (f Flags) String() string {
	var b strings.Builder
	for _, kv := range f {
		fmt.Fprintf(&b, "--%s=%s\n", kv[0], kv[1])
	}
	return b.String()
}

// List joins values with commas, as flags take lists.
func List[T fmt.Stringer](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	return strings.Join(words, ",")
}

// Override returns f with the user's "name=value" settings, which replace coracle's flags of the same names and
// come last. A name without a value is set to true.
func (f Flags) Override(user []string) Flags {
	var theirs Flags
	for _, arg := range user {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !ok {
			value = "true"
		}
		theirs = append(theirs, [2]string{strings.ReplaceAll(name, "_", "-"), value})
	}
	return append(f.Without(theirs.Names()...), theirs...)
}

// Without returns f without the named flags.
func (f Flags) Without(names ...string) Flags {
	return slices.DeleteFunc(slices.Clone(f), func(kv [2]string) bool { return slices.Contains(names, kv[0]) })
}

// Names lists the flags' names, in order.
func (f Flags) Names() []string {
	names := make([]string, len(f))
	for i, kv := range f {
		names[i] = kv[0]
	}
	return names
}

// Parse sets the flags in the flag sets of the named upstream component, and logs them. An error names the pass-through
// setting to correct. A flag that is set several times is handled as the component itself does.
func (f Flags) Parse(part string, sets cliflag.NamedFlagSets) error {
	all := pflag.NewFlagSet(part, pflag.ContinueOnError)
	all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	all.SetOutput(io.Discard) // else it writes to stderr which flags are deprecated
	for _, name := range sets.Order {
		all.AddFlagSet(sets.FlagSets[name])
	}
	for _, kv := range f {
		if all.Lookup(kv[0]) == nil {
			return fmt.Errorf("%s has no flag %q: correct or remove --%s-arg %s=%s", part, kv[0], part, kv[0], kv[1])
		}
		if err := all.Set(kv[0], kv[1]); err != nil {
			return fmt.Errorf("setting --%s-arg %s=%s: %w", part, kv[0], kv[1], err)
		}
	}
	logrus.WithField("component", part).Debugf("flags: %s", strings.ReplaceAll(strings.TrimSpace(f.String()), "\n", " "))
	return nil
}

// gatesFlag is the pass-through flag that all parts of a process share.
const gatesFlag = "feature-gates"

// ShareFeatureGates returns the union of the feature gates in the pass-through settings of several parts, as one
// setting for the part that is parsed first. Kubernetes keeps feature gates process-wide, so the parts must not
// contradict each other. It returns "" if none is set.
func ShareFeatureGates(args map[string][]string, parts ...string) (setting string, err error) {
	values, setBy := map[string]string{}, map[string]string{}
	for _, part := range parts {
		for _, arg := range args[part] {
			name, list, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if strings.ReplaceAll(name, "_", "-") != gatesFlag {
				continue
			}
			for _, gate := range strings.Split(list, ",") {
				gate, value, _ := strings.Cut(strings.TrimSpace(gate), "=")
				if old, ok := values[gate]; ok && old != value {
					return "", fmt.Errorf("--%s-arg and --%s-arg set feature gate %s to %s and to %s, but these parts share one process: set it alike",
						setBy[gate], part, gate, old, value)
				}
				values[gate], setBy[gate] = value, part
			}
		}
	}
	if len(values) == 0 {
		return "", nil
	}
	var all []string
	for _, gate := range slices.Sorted(maps.Keys(values)) {
		all = append(all, gate+"="+values[gate])
	}
	return gatesFlag + "=" + strings.Join(all, ","), nil
}
