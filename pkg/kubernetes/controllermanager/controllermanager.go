// Package controllermanager runs kube-controller-manager.
package controllermanager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/filewatch"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// ControllerManager is the component. It needs a healthy API server when it starts.
type ControllerManager struct {
	Kubeconfig        string
	CA                string        // what pods get to verify the API server
	Signer, CAKey     string        // sign certificates
	CertificateLife   time.Duration // of certificates that are requested through the API, at most
	ServiceAccountKey string
	VolumePlugins     string // directory of FlexVolume plugins, made if it is missing
	Network           config.Network
	Args              []string // pass-through flags, "name=value"
}

// Run runs the controllers until ctx is done, and may be called again then. It is ready when they are configured. They start again when the CA for pods
// or the key for tokens changes, which upstream reads at the start only.
func (c ControllerManager) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kube-controller-manager")
	ready = sync.OnceFunc(ready)
	changes := filewatch.Changes(ctx, func() string { return filewatch.State(c.CA) + filewatch.State(c.ServiceAccountKey) })
	for {
		once, end := context.WithCancel(ctx)
		changed := make(chan bool, 1)
		go func() {
			select {
			case <-changes:
				changed <- true
				end()
			case <-once.Done():
				changed <- false
			}
		}()
		err := c.run(once, ready)
		end()
		if !<-changed || ctx.Err() != nil {
			return err
		}
		logrus.WithField("component", "kube-controller-manager").Info("starting the controllers again with another CA for pods, or another key for tokens")
	}
}

// run runs the controllers once.
func (c ControllerManager) run(ctx context.Context, ready func()) error {
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("making the default options: %w", err)
	}
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	sets := opts.Flags(known, disabled, aliases)
	opts.ParsedFlags = &sets
	flags := c.flags()
	if err := flags.Parse("kube-controller-manager", sets); err != nil {
		return err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: flags})
	kube.RaiseVerbosity(int(opts.Logs.Verbosity))
	if err := os.MkdirAll(c.VolumePlugins, 0o755); err != nil { // the prober of FlexVolumes warns if it has to make it
		return fmt.Errorf("making the directory of volume plugins: %w", err)
	}
	subnets := takeNodeIPAM(opts)
	cfg, err := opts.Config(ctx, known, disabled, aliases)
	if err != nil {
		return err
	}
	if err := kube.FenceConnections(ctx, cfg.Kubeconfig); err != nil {
		return err
	}
	if cfg.Client, err = kubernetes.NewForConfig(restclient.AddUserAgent(cfg.Kubeconfig, options.KubeControllerManagerUserAgent)); err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	complete := cfg.Complete()
	// Upstream registers these for the life of the process, and refuses a second time, or logs an error.
	cache.ResetInformerNamesForTesting()
	configz.Delete(app.ConfigzName)
	kube.OmitMetrics("replicaset_controller_sorting_deletion_age_ratio", "replicaset_controller_stale_sync_skips_total")
	ctx, cancel := context.WithCancel(ctx)
	var apart sync.WaitGroup
	defer apart.Wait()
	defer cancel()
	failed := make(chan error, 1)
	if subnets {
		apart.Go(func() {
			if err := runNodeIPAM(ctx, complete); err != nil && ctx.Err() == nil {
				failed <- err
				cancel()
			}
		})
	}
	if c.apart() {
		apart.Go(func() {
			if err := runPolicyStatus(ctx, complete); err != nil && ctx.Err() == nil {
				logrus.WithField("component", "kube-controller-manager").WithError(err).Error("the status of admission policies is not kept")
			}
		})
	}
	ready()
	err = app.Run(ctx, complete)
	select {
	case err := <-failed:
		return err
	default:
	}
	if err == nil && ctx.Err() == nil {
		return errors.New("the controllers ended unexpectedly")
	}
	return err
}

// controllers is the flag for all controllers, with one that is off by default, and without the one that runs apart.
var controllers = [2]string{"controllers", "*,tokencleaner,-" + policyStatus}

// flags returns kube-controller-manager's command-line flags.
func (c ControllerManager) flags() kube.Flags {
	f := kube.Flags{
		{"kubeconfig", c.Kubeconfig},
		{"authentication-kubeconfig", c.Kubeconfig},
		{"authorization-kubeconfig", c.Kubeconfig},
		{"leader-elect", "false"}, // losing the lead would end the whole process
		// Its metrics are among the API server's: one process, one registry.
		{"secure-port", "0"},
		{"profiling", "false"},
		controllers,
		{"use-service-account-credentials", "true"},
		// Four heartbeats. Upstream adds ten seconds for kubelets whose API server has died; the balancer finds another one at once.
		{"node-monitor-grace-period", "40s"},
		// At the start each controller requests a token. With upstream's 20 requests per second that takes 5 s, in which nodes get no pod
		// CIDR. The API server has its own flow control.
		{"kube-api-qps", "1000"},
		{"kube-api-burst", "1000"},

		{"service-account-private-key-file", c.ServiceAccountKey},
		{"root-ca-file", c.CA},
		{"cluster-signing-cert-file", c.Signer},
		{"cluster-signing-key-file", c.CAKey},
		{"cluster-signing-duration", c.CertificateLife.String()},
		{"flex-volume-plugin-dir", c.VolumePlugins},

		{"allocate-node-cidrs", "true"},
		{"cluster-cidr", kube.List(c.Network.ClusterCIDRs)},
		{"service-cluster-ip-range", kube.List(c.Network.ServiceCIDRs)},
	}
	for _, p := range c.Network.ClusterCIDRs {
		f = append(f, nodeMask(p, len(c.Network.ClusterCIDRs) > 1))
	}
	return f.Override(c.Args)
}

// nodeMask returns the flag with the size of a node's part of a cluster CIDR: a /24 of IPv4 or a /64 of IPv6, upstream's defaults. If the
// CIDR is too small for several of these, a part is a quarter of it. If it has more than 65536 of these, upstream's limit, parts are larger.
func nodeMask(cluster netip.Prefix, dual bool) [2]string {
	name, share := "node-cidr-mask-size", 24
	if cluster.Addr().Is6() {
		share = 64
	}
	if cluster.Bits() >= share {
		share = min(cluster.Bits()+2, cluster.Addr().BitLen())
	}
	share = min(share, cluster.Bits()+16)
	switch {
	case dual && cluster.Addr().Is4():
		name += "-ipv4"
	case dual:
		name += "-ipv6"
	}
	return [2]string{name, strconv.Itoa(share)}
}
