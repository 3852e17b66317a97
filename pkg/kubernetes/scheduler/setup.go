package scheduler

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// setup is upstream's app.Setup, with clients that send nothing once ctx is done: upstream's function makes clients that nobody can
// change before they are used.
func setup(ctx context.Context, opts *options.Options, plugins ...app.Option) (*config.CompletedConfig, *scheduler.Scheduler, error) {
	var err error
	if opts.ComponentConfig, err = latest.Default(); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(opts.Validate()...); err != nil {
		return nil, nil, err
	}
	cfg, err := opts.Config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := fence(ctx, cfg); err != nil {
		return nil, nil, fmt.Errorf("making the clients: %w", err)
	}
	complete := cfg.Complete()
	registry := runtime.Registry{}
	for _, plugin := range plugins {
		if err := plugin(registry); err != nil {
			return nil, nil, err
		}
	}
	recorder := func(name string) events.EventRecorderLogger { return complete.EventBroadcaster.NewRecorder(name) }
	own := complete.ComponentConfig
	s, err := scheduler.New(ctx, complete.Client, complete.InformerFactory, complete.DynInformerFactory, recorder,
		scheduler.WithComponentConfigVersion(own.APIVersion),
		scheduler.WithKubeConfig(complete.KubeConfig),
		scheduler.WithProfiles(own.Profiles...),
		scheduler.WithPercentageOfNodesToScore(own.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(own.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(own.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(complete.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(own.Extenders...),
		scheduler.WithParallelism(own.Parallelism),
	)
	return &complete, s, err
}

// fence replaces the clients in cfg, and what has them.
func fence(ctx context.Context, cfg *config.Config) error {
	if err := kube.FenceConnections(ctx, cfg.KubeConfig); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg.KubeConfig, "scheduler"))
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cfg.KubeConfig)
	if err != nil {
		return err
	}
	cfg.Client = client
	cfg.InformerFactory = scheduler.NewInformerFactory(client, 0, nil)
	cfg.DynInformerFactory = dynamicinformer.NewFilteredDynamicSharedInformerFactory(objects, 0, corev1.NamespaceAll, nil)
	cfg.EventBroadcaster.Shutdown()
	cfg.EventBroadcaster = events.NewEventBroadcasterAdapterWithContext(ctx, client)
	return nil
}
