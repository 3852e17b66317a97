package member

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
)

// owned are the settings that coracle computes. Another value would break the cluster.
var owned = []string{
	"name", "data-dir", "listen-peer-urls", "initial-advertise-peer-urls", "advertise-client-urls", "initial-cluster",
	"initial-cluster-state", "initial-cluster-token", "force-new-cluster", "peer-cert-file", "peer-key-file",
	"peer-trusted-ca-file", "peer-client-cert-auth", "peer-auto-tls", "discovery-endpoints", "discovery-srv", "discovery-token",
	"logger", "log-outputs", "log-format", "log-level",
}

func parseURLs(texts ...string) ([]url.URL, error) {
	urls, err := types.NewURLs(texts)
	return urls, err
}

// urls returns the fields of the flags that etcd's flag set parses but does not store.
func urls(cfg *embed.Config) map[string]*[]url.URL {
	return map[string]*[]url.URL{
		"listen-client-urls":      &cfg.ListenClientUrls, // in addition to the socket
		"listen-client-http-urls": &cfg.ListenClientHttpUrls,
		"listen-metrics-urls":     &cfg.ListenMetricsUrls,
	}
}

// override applies the feature gates and the pass-through settings to cfg.
func (e *Etcd) override(cfg *embed.Config, gates string) error {
	if err := cfg.ServerFeatureGate.(featuregate.MutableFeatureGate).Set(gates); err != nil {
		return fmt.Errorf("setting etcd's feature gates: %w", err)
	}
	// AddFlags sets package variables of rafthttp too (embed/config.go:647), which a member that is just ending may still read.
	if len(e.Args) == 0 {
		return nil
	}
	fs := flag.NewFlagSet("etcd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	// AddFlags resets some fields to etcd's defaults, so they are restored afterwards.
	before := *cfg
	cfg.AddFlags(fs)
	cfg.ListenPeerUrls, cfg.InitialCluster = before.ListenPeerUrls, before.InitialCluster
	cfg.PeerTLSInfo, cfg.UnsafeNoFsync = before.PeerTLSInfo, before.UnsafeNoFsync

	for _, arg := range e.Args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !ok {
			value = "true"
		}
		if slices.Contains(owned, name) {
			return fmt.Errorf("coracle itself decides etcd's %q: remove --etcd-arg %s", name, arg)
		}
		if list, ok := urls(cfg)[name]; ok {
			more, err := types.NewURLs(strings.Split(value, ","))
			if err != nil {
				return fmt.Errorf("setting --etcd-arg %s: %w", arg, err)
			}
			*list = append(*list, more...)
			continue
		}
		if fs.Lookup(name) == nil {
			return fmt.Errorf("etcd has no flag %q: correct or remove --etcd-arg %s", name, arg)
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("setting --etcd-arg %s: %w", arg, err)
		}
	}
	return nil
}
