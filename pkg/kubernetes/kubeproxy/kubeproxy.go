// Package kubeproxy runs kube-proxy inside the node process, in nftables mode: Services are elements of maps, so the cost per packet does not
// depend on their number.
package kubeproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-proxy/app"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// KubeProxy is a node's kube-proxy.
type KubeProxy struct {
	// Node must have its addresses before kube-proxy starts, which looks for them only once a second, and ends the process when they
	// change. Since is when this process started.
	Node  *kube.OwnNode
	Since time.Time

	Name       string // of the Node object
	IP         netip.Addr
	Kubeconfig string
	// ClusterCIDRs are the pods' networks: traffic from elsewhere to a Service leaves with the node's address.
	ClusterCIDRs []netip.Prefix
	// Args are the user's flags, "name=value".
	Args []string
}

// flags returns kube-proxy's flags, with the user's last. kube-proxy does not change the limits of conntrack: package host sets them if it
// has permission, and in a container kube-proxy would fail. NodePorts are served on the node's addresses, not on 127.0.0.1, which is
// upstream's default in this mode.
func (p KubeProxy) flags() kube.Flags {
	return kube.Flags{
		{"proxy-mode", "nftables"},
		{"hostname-override", p.Name},
		{"kubeconfig", p.Kubeconfig},
		{"kube-api-content-type", "application/vnd.kubernetes.protobuf"},
		{"cluster-cidr", kube.List(p.ClusterCIDRs)},
		{"detect-local-mode", "ClusterCIDR"},
		{"nodeport-addresses", "primary"},
		{"healthz-bind-address", netip.AddrPortFrom(p.loopback(), 10256).String()},
		{"metrics-bind-address", netip.AddrPortFrom(p.loopback(), 10249).String()},
		{"conntrack-max-per-core", "0"},
		{"conntrack-min", "0"},
		{"conntrack-tcp-timeout-established", "0"},
		{"conntrack-tcp-timeout-close-wait", "0"},
	}.Override(p.Args)
}

// loopback is the loopback address of the node's first family.
func (p KubeProxy) loopback() netip.Addr {
	if p.IP.Is6() {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Run works until ctx is done. It is ready when the rules for all Services have been written once. kube-proxy cannot be stopped: its
// goroutines end with the process, and its rules stay in force.
func (p KubeProxy) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kube-proxy")
	opts := app.NewOptions()
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	opts.AddFlags(set)
	flags := p.flags()
	sets := cliflag.NamedFlagSets{Order: []string{"kube-proxy"}, FlagSets: map[string]*pflag.FlagSet{"kube-proxy": set}}
	if err := flags.Parse("kube-proxy", sets); err != nil {
		return err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: flags})
	if v, err := strconv.Atoi(set.Lookup("v").Value.String()); err == nil {
		kube.RaiseVerbosity(v)
	}
	if err := opts.Complete(set); err != nil {
		return fmt.Errorf("completing its options: %w", err)
	}
	if err := opts.Validate(); err != nil {
		return fmt.Errorf("checking its options: %w", err)
	}
	_, err := p.Node.Await(ctx, "the kubelet to report the node's addresses", func(n *corev1.Node) bool {
		return kube.HeardOf(n, p.Since) && kube.AddressesSettled(n)
	})
	if err != nil {
		return err
	}
	// A new cluster grants the permission a moment after its API answers, and informers back off after a refusal.
	if err := kube.AwaitAPI(ctx, p.Kubeconfig, p.Name); err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- opts.Run(ctx) }()
	address := set.Lookup("healthz-bind-address").Value.String()
	go func() {
		if lifecycle.Until(ctx, "kube-proxy to write its rules", synced(address)) == nil {
			ready()
		}
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return nil
	}
}

// synced returns a probe that asks kube-proxy's health server whether it has written the rules.
func synced(address string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var health struct {
			LastUpdated time.Time `json:"lastUpdated"`
		}
		if err := json.NewDecoder(response.Body).Decode(&health); err != nil {
			return fmt.Errorf("reading its health: %w", err)
		}
		if health.LastUpdated.IsZero() {
			return errors.New("no rules written yet")
		}
		return nil
	}
}
