// Package kubelet runs the kubelet inside the node process, from a generated KubeletConfiguration, the user's
// drop-ins and the user's flags, in this order of precedence.
package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Kubelet is a node's kubelet. Paths are absolute.
type Kubelet struct {
	Name   string // of the Node object
	IPs    []netip.Addr
	Labels map[string]string
	Taints []string // key=value:Effect
	// ExternalAddresses is true if the control plane sets the Node's addresses, because there are some that the
	// kubelet cannot set.
	ExternalAddresses bool

	Kubeconfig string
	// BootstrapKubeconfig is the identity with which the kubelet asks for its first client certificate; "" if one was
	// made for it. Identity is told when there is one; nil tells nobody.
	BootstrapKubeconfig string
	Identity            *Identity
	// APIReady is closed when the API server serves this node. The kubelet starts earlier and holds its requests
	// back until then: it would back off for seconds after the first refusal.
	APIReady <-chan struct{}

	ConfigFile, DropIns string // the generated configuration; a directory of the user's *.conf and *.yaml files
	Root                string // /var/lib/kubelet
	PKI                 string // certificates; the kubelet rotates its own in here
	ClientCA            string // signs who may call the kubelet
	StaticPods          string // directory of pod manifests that run without an API server
	CRISocket           string

	ClusterDNS []netip.Addr
	Domain     string
	ResolvConf string

	CgroupV2      bool
	CgroupRoot    string // "" is the root
	SystemdCgroup bool   // systemd manages the cgroups
	DelayShutdown bool   // logind is there to delay a shutdown for

	// Args are the user's flags, "name=value".
	Args []string
}

// Run works until ctx is done. It is ready when the kubelet's own health endpoint says so: the node may become
// Ready later. Pods stay as they are when it stops.
func (k Kubelet) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kubelet")
	server, err := k.server()
	if err != nil {
		return err
	}
	for _, dir := range []string{k.StaticPods, server.VolumePluginDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a directory of the kubelet: %w", err)
		}
	}
	deps, err := app.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("putting together its dependencies: %w", err)
	}
	if err := k.clients(ctx, server, deps); err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- app.Run(ctx, server, deps, utilfeature.DefaultFeatureGate) }()
	go func() {
		if lifecycle.Until(ctx, "the kubelet's health endpoint", healthy(server)) == nil {
			ready()
		}
	}()
	return <-result
}

// server makes the kubelet's settings of configuration, drop-ins and flags.
func (k Kubelet) server() (*options.KubeletServer, error) {
	config, err := k.load()
	if err != nil {
		return nil, err
	}
	flags := options.NewKubeletFlags()
	if err := k.parse(flags, config); err != nil {
		return nil, err
	}
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, fmt.Errorf("checking its flags: %w", err)
	}
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, nil
}
