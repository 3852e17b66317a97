package member

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
)

// owned are the settings that coracle computes. Another value would break the cluster.
var owned = []string{
	"name", "data-dir", "listen-peer-urls", "listen-client-http-urls", "initial-advertise-peer-urls", "advertise-client-urls", "initial-cluster",
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
		"listen-client-urls":  &cfg.ListenClientUrls, // in addition to the socket
		"listen-metrics-urls": &cfg.ListenMetricsUrls,
	}
}

// flags returns the flags of etcd that would make cfg: those that decide who may talk to the member and where its data is, those that coracle sets
// otherwise than upstream, and the user's. The addresses for peers are not among them: OpenPeers serves those.
func flags(cfg *embed.Config, args []string) [][2]string {
	var listen []string
	for _, u := range cfg.ListenClientUrls {
		listen = append(listen, u.String())
	}
	client, peer := cfg.ClientTLSInfo, cfg.PeerTLSInfo
	all := [][2]string{
		{"name", cfg.Name}, {"data-dir", cfg.Dir}, {"listen-client-urls", strings.Join(listen, ",")},
		{"cert-file", client.CertFile}, {"key-file", client.KeyFile}, {"trusted-ca-file", client.TrustedCAFile},
		{"client-cert-auth", strconv.FormatBool(client.ClientCertAuth)}, {"auto-tls", strconv.FormatBool(cfg.ClientAutoTLS)},
		{"peer-cert-file", peer.CertFile}, {"peer-key-file", peer.KeyFile}, {"peer-trusted-ca-file", peer.TrustedCAFile},
		{"peer-client-cert-auth", strconv.FormatBool(peer.ClientCertAuth)}, {"peer-auto-tls", strconv.FormatBool(cfg.PeerAutoTLS)},
		{"heartbeat-interval", strconv.Itoa(int(cfg.TickMs))}, {"election-timeout", strconv.Itoa(int(cfg.ElectionMs))},
		{"snapshot-count", strconv.Itoa(int(cfg.SnapshotCount))}, {"unsafe-no-fsync", strconv.FormatBool(cfg.UnsafeNoFsync)},
		{"snapshot-catchup-entries", strconv.Itoa(int(cfg.SnapshotCatchUpEntries))}, {"strict-reconfig-check", strconv.FormatBool(cfg.StrictReconfigCheck)},
		{"backend-batch-interval", cfg.BackendBatchInterval.String()}, {"backend-batch-limit", strconv.Itoa(cfg.BackendBatchLimit)},
		{"enable-grpc-gateway", strconv.FormatBool(cfg.EnableGRPCGateway)}, {"warning-apply-duration", cfg.WarningApplyDuration.String()},
		{"feature-gates", cfg.ServerFeatureGate.String()},
	}
	ours := len(all)
	for _, arg := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !ok {
			value = "true"
		}
		if !slices.ContainsFunc(all[:ours], func(kv [2]string) bool { return kv[0] == name }) {
			all = append(all, [2]string{name, value})
		}
	}
	return slices.DeleteFunc(all, func(kv [2]string) bool { return kv[1] == "" })
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
