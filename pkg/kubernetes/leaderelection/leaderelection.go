// Package leaderelection decides on which server the controllers work, when there are several: on the one that holds the
// Lease kube-system/coracle-control-plane. What must run once in a cluster needs this component, and so runs behind it: it is stopped
// when the Lease is lost, and starts again when this server leads again. Its clients are of kube.Fence.
//
// A server that is alone takes no Lease: no other server contends for it, and each renewal is a write to the datastore,
// every two seconds.
package leaderelection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// The Lease and its timing. A leader writes nothing more at most retryPeriod + renewDeadline (10 s) after its last renewal. Another server
// looks at the Lease every retryPeriod to 2.2 times retryPeriod (client-go's JitterFactor is 1.2) and takes it when it has
// seen no renewal for leaseDuration, so it leads between 12 s and 20.8 s after that renewal: nothing of the former leader writes then.
const (
	namespace = "kube-system"
	lease     = "coracle-control-plane"

	leaseDuration = 12 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 2 * time.Second
)

// Leadership is the component. It is ready once this server leads; until then it reports that it stands by.
type Leadership struct {
	// Kubeconfig may get, create, update and delete Leases in kube-system.
	Kubeconfig string
	// Server is this server's name in the Lease. It is unique in the cluster, and the same after a restart.
	Server string
	// Several reports whether the cluster has other servers that might lead. It is called at the start only.
	Several func(context.Context) (bool, error)

	ask        sync.Once
	asked      chan struct{} // closed by the first Contest
	contesting chan struct{} // closed when this server leads only while it holds the Lease
	withdraw   func(context.Context, error) error
}

// New returns the component of the named server.
func New(kubeconfig, server string, several func(context.Context) (bool, error)) *Leadership {
	return &Leadership{
		Kubeconfig: kubeconfig, Server: server, Several: several,
		asked: make(chan struct{}), contesting: make(chan struct{}), withdraw: lifecycle.Withdraw,
	}
}

// Contest makes a lone server, which leads without the Lease, take it, and returns when it holds it. Call it before another
// server joins. If the servers already contend for the Lease it returns at once.
func (l *Leadership) Contest(ctx context.Context) error {
	l.ask.Do(func() { close(l.asked) })
	select {
	case <-l.contesting:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("taking the Lease %s/%s: %w", namespace, lease, context.Cause(ctx))
	}
}

// Run contends for the lead until ctx is done, again each time it is lost.
func (l *Leadership) Run(ctx context.Context, ready func()) error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", l.Kubeconfig, err)
	}
	config.UserAgent = "coracle"
	config.Timeout = renewDeadline / 2 // a request that hangs leaves time for another one
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client from %s: %w", l.Kubeconfig, err)
	}
	return l.run(kube.WithComponent(ctx, "leadership"), client, ready)
}

// run is Run with a client.
func (l *Leadership) run(ctx context.Context, client kubernetes.Interface, ready func()) error {
	var several bool
	err := lifecycle.Until(ctx, "the list of servers", func(ctx context.Context) (err error) {
		several, err = l.Several(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var contests sync.Once
	lead := func() {
		contests.Do(func() { close(l.contesting) })
		ready()
	}
	if several {
		contests.Do(func() { close(l.contesting) })
	} else {
		ready()
		select {
		case <-l.asked:
		case <-ctx.Done():
			return nil
		}
		if err := l.deleteOldLease(ctx, client); err != nil {
			return err
		}
	}
	for {
		lost, err := l.contend(ctx, client, lead)
		if lost == nil {
			return err
		}
		logrus.WithField("component", "leadership").Warnf("%v: the controllers of this server stop", lost)
		if l.withdraw(ctx, lost) != nil {
			<-ctx.Done() // one of them has not stopped, so the process ends
			return nil
		}
	}
}

// deleteOldLease removes a Lease that is left from when the cluster had other servers. This server is alone and need not wait
// until it expires.
func (l *Leadership) deleteOldLease(ctx context.Context, client kubernetes.Interface) error {
	return lifecycle.Until(ctx, "the old Lease to be deleted", func(ctx context.Context) error {
		err := client.CoordinationV1().Leases(namespace).Delete(ctx, lease, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// contend takes the Lease when it is free, calls onLead, and renews it until ctx is done or the Lease is lost.
func (l *Leadership) contend(ctx context.Context, client kubernetes.Interface, onLead func()) (lost, err error) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: lease},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Server},
	}
	leading := make(chan struct{})
	var callback sync.Mutex
	over := false // the elector's call may come after its end
	work, stop := context.WithCancel(ctx)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: stopWhenTaken{lock, leading, stop}, Name: lease,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				callback.Lock()
				defer callback.Unlock()
				if !over {
					onLead()
					close(leading)
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(server string) {
				if server != l.Server && server != "" {
					lifecycle.StandBy(ctx, server+" leads")
					logrus.WithField("component", "leadership").Infof("server %s leads", server)
				}
			},
		},
	})
	if err != nil {
		return nil, err
	}
	elector.Run(work)
	callback.Lock()
	over = true
	callback.Unlock()
	if ctx.Err() == nil {
		return l.lost(elector.GetLeader()), nil
	}
	select {
	case <-leading:
		return nil, release(lock, l.Server)
	default:
		return nil, nil
	}
}
