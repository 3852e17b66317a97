// Package scheduler runs kube-scheduler.
package scheduler

import (
	"context"
	"fmt"

	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Scheduler is the component.
type Scheduler struct {
	Kubeconfig string
	// Config is the file of the user's KubeSchedulerConfiguration, "" for none. Effective is the file that Run writes from it.
	Config, Effective string
	Args              []string // pass-through flags, "name=value"
	// Plugins are framework plugins of coracle, for use in profiles.
	Plugins []app.Option
}

// Run schedules pods until ctx is done, and may be called again then.
func (s Scheduler) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kube-scheduler")
	flags, err := s.flags()
	if err != nil {
		return err
	}
	opts := options.NewOptions()
	if err := flags.Parse("kube-scheduler", *opts.Flags); err != nil {
		return err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: flags})
	kube.RaiseVerbosity(int(opts.Logs.Verbosity))
	cfg, scheduler, err := setup(ctx, opts, s.Plugins...)
	if err != nil {
		return err
	}
	defer cfg.DynInformerFactory.Shutdown()
	defer cfg.InformerFactory.Shutdown()
	configz.Delete("componentconfig") // upstream registers it for the life of the process, and refuses a second time
	go func() {
		cfg.InformerFactory.WaitForCacheSync(ctx.Done())
		if scheduler.WaitForHandlersSync(ctx) == nil {
			ready()
		}
	}()
	if err := app.Run(ctx, cfg, scheduler); ctx.Err() == nil {
		return fmt.Errorf("scheduling: %w", err)
	}
	return nil
}

// requestRate is the limit of requests per second.
const requestRate = "1000"

// flags returns kube-scheduler's command-line flags.
func (s Scheduler) flags() (kube.Flags, error) {
	f := kube.Flags{
		{"kubeconfig", s.Kubeconfig},
		{"authentication-kubeconfig", s.Kubeconfig},
		{"authorization-kubeconfig", s.Kubeconfig},
		{"leader-elect", "false"}, // losing the lead would end the whole process
		// Upstream's limit of 50 requests per second would limit the scheduler to 50 pods per second. The API server has its own flow
		// control.
		{"kube-api-qps", requestRate},
		{"kube-api-burst", requestRate},
		// Its metrics are among the API server's: one process, one registry.
		{"secure-port", "0"},
		{"profiling", "false"},
	}
	if s.Config != "" {
		if err := s.mergeConfig(); err != nil {
			return nil, err
		}
		f = append(f, [2]string{"config", s.Effective})
	}
	return f.Override(s.Args), nil
}
