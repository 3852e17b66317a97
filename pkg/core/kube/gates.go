package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
