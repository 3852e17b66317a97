// Package kubelet runs the kubelet inside the node process. Its configuration is a generated KubeletConfiguration, which the user's
// drop-ins override, which the user's flags override.
package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/cadvisor/lib/container/containerd"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
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
	// BootstrapKubeconfig has the identity with which the kubelet requests its first client certificate; "" if the certificate exists.
	// Identity becomes ready with the certificate; it may be nil.
	BootstrapKubeconfig string
	Identity            *Identity
	// UnknownKey is the reason of the API server's 401 for a certificate whose key it does not know. Run then removes the certificate and returns an
	// error: the next start requests another one with BootstrapKubeconfig.
	UnknownKey string
	// APIReady is closed when the API server serves this node. The kubelet starts earlier, and its requests wait until then: after a
	// refused request it would back off for seconds.
	APIReady <-chan struct{}

	ConfigFile, DropIns string // the generated configuration; a directory of the user's *.conf and *.yaml files
	Root                string // /var/lib/kubelet
	PKI                 string // directory of certificates, where the kubelet rotates its own
	ClientCA            string // file of the authority for clients of the kubelet
	StaticPods          string // directory of pod manifests that run without an API server
	CRISocket           string

	ClusterDNS []netip.Addr
	Domain     string
	ResolvConf string

	// Strict confines pods that say nothing about it. ProtectKernel makes the kubelet fail, instead of changing them, if kernel settings are not as it
	// needs them. Ciphers are the suites of TLS 1.2; none means upstream's.
	Strict, ProtectKernel bool
	Ciphers               []string

	CgroupV2      bool
	CgroupRoot    string // "" is the root
	SystemdCgroup bool   // systemd manages the cgroups
	DelayShutdown bool   // logind is there, which can delay a shutdown

	// Args are the user's flags, "name=value".
	Args []string
}

// Run works until ctx is done. It is ready when the kubelet's health endpoint answers; the Node may become Ready later. Pods keep running
// when it stops.
func (k Kubelet) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kubelet")
	server, err := k.server()
	if err != nil {
		return err
	}
	effective, err := encode(&server.KubeletConfiguration)
	if err != nil {
		return err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: k.flags(), Config: effective})
	for _, dir := range []string{k.StaticPods, server.VolumePluginDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a directory of the kubelet: %w", err)
		}
	}
	if err := k.removeEarly(); err != nil {
		return err
	}
	// cadvisor asks containerd which container a cgroup belongs to. Without it, series of containers have no names, and those of pods' networks are missing.
	*containerd.ArgContainerdEndpoint = k.CRISocket
	deps, err := app.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("making its dependencies: %w", err)
	}
	result := make(chan error, 3)
	if err := k.clients(ctx, server, deps, result); err != nil {
		return err
	}
	go k.trimLastWords(ctx)
	go func() { result <- app.Run(ctx, server, deps, utilfeature.DefaultFeatureGate) }()
	go limitConnections(ctx, uint16(server.Port))
	go func() {
		probe := healthy(server)
		lifecycle.ProbeWith(ctx, probe)
		if lifecycle.Until(ctx, "the kubelet's health endpoint", probe) == nil {
			ready()
		}
	}()
	return <-result
}

// server returns the kubelet's settings from configuration, drop-ins and flags.
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
