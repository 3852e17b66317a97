package controlplane

import (
	"maps"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// peerProxy is the feature gate with which API servers of different versions pass requests on to each other. Each announces itself in etcd for that every
// ten seconds, under a lease of its own, which is a third of all that an idle server writes.
const peerProxy = "UnknownVersionInteroperabilityProxy"

// featureGates returns the feature gates of the process, as one pass-through setting. A server that has never had another one needs no peerProxy: before
// servers of different versions meet, each has been started again.
func featureGates(cfg config.Config) (string, error) {
	args := maps.Clone(cfg.Args)
	byUser := slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(cfg.Args))...), func(arg string) bool { return strings.Contains(arg, peerProxy+"=") })
	if !byUser && join.Alone(cfg) {
		if args == nil {
			args = map[string][]string{}
		}
		args["coracle"] = []string{"feature-gates=" + peerProxy + "=false"}
	}
	return kube.ShareFeatureGates(args, "coracle", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
}
