// Package leaderelection decides on which server the controllers work, when there are several: on the one that holds the
// Lease kube-system/coracle-control-plane. What must run once in a cluster needs this component, and so runs behind it.
//
// A server that is alone takes no Lease, because nobody could contend for it, and renewing it would cost two writes
// every few seconds for ever.
package leaderelection

import (
	"context"
	"errors"
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

// The Lease, and how long it is good for: another server leads at most leaseDuration and a bit more than retryPeriod
// after the leader's last renewal. By then the leader has ended: it does so retryPeriod + renewDeadline after it.
const (
	namespace = "kube-system"
	lease     = "coracle-control-plane"

	leaseDuration = 12 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 2 * time.Second
)

// releaseTimeout is how long a server that stops tries to give the Lease back; it expires by itself.
const releaseTimeout = 2 * time.Second

// Leadership is the component. It is ready once this server leads, and stands by until then.
type Leadership struct {
	// Kubeconfig may get, create, update and delete Leases in kube-system.
	Kubeconfig string
	// Server is this server's name in the Lease. No other has it, but for its own former self.
	Server string
	// Several reports, at the start, whether the cluster has other servers that might lead.
	Several func(context.Context) (bool, error)

	ask        sync.Once
	asked      chan struct{} // closed when a lone server is to contest
	contesting chan struct{} // closed when nobody can lead without the Lease any more
}

// New returns the component of the named server.
func New(kubeconfig, server string, several func(context.Context) (bool, error)) *Leadership {
	return &Leadership{
		Kubeconfig: kubeconfig, Server: server, Several: several,
		asked: make(chan struct{}), contesting: make(chan struct{}),
	}
}

// Contest makes a lone server, which has led without a Lease until now, take it. It is to be called before another
// server is let in, and returns when that is safe. Where the Lease is contended for already it returns at once.
func (l *Leadership) Contest(ctx context.Context) error {
	l.ask.Do(func() { close(l.asked) })
	select {
	case <-l.contesting:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("taking the Lease %s/%s: %w", namespace, lease, context.Cause(ctx))
	}
}

// Run leads until ctx is done, as soon as it may. Losing the lead is an error: what is behind must end.
func (l *Leadership) Run(ctx context.Context, ready func()) error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", l.Kubeconfig, err)
	}
	config.UserAgent = "coracle"
	config.Timeout = renewDeadline / 2 // so that one request which hangs is not the end
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client from %s: %w", l.Kubeconfig, err)
	}
	return l.run(kube.WithComponent(ctx, "leadership"), client, ready)
}

func (l *Leadership) run(ctx context.Context, client kubernetes.Interface, ready func()) error {
	var several bool
	err := lifecycle.Until(ctx, "the list of servers", func(ctx context.Context) (err error) {
		several, err = l.Several(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if several {
		close(l.contesting)
		return l.contend(ctx, client, ready)
	}
	ready()
	select {
	case <-l.asked:
	case <-ctx.Done():
		return nil
	}
	if err := l.forget(ctx, client); err != nil {
		return err
	}
	return l.contend(ctx, client, func() { close(l.contesting) })
}

// forget removes the Lease of a time when there were other servers: this one is alone, and need not wait for it to
// expire.
func (l *Leadership) forget(ctx context.Context, client kubernetes.Interface) error {
	return lifecycle.Until(ctx, "the old Lease to go", func(ctx context.Context) error {
		err := client.CoordinationV1().Leases(namespace).Delete(ctx, lease, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// contend takes the Lease when it is to be had, calls led, and renews it until ctx is done.
func (l *Leadership) contend(ctx context.Context, client kubernetes.Interface, led func()) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: lease},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Server},
	}
	leading := make(chan struct{})
	work, stop := context.WithCancel(ctx)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: watched{lock, leading, stop}, Name: lease,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				led()
				close(leading)
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
		return err
	}
	elector.Run(work)
	if ctx.Err() == nil {
		return l.lost(elector.GetLeader())
	}
	select {
	case <-leading:
		return release(lock, l.Server)
	default:
		return nil
	}
}

// watched is a lock that ends the lead at once when it turns out to be another server's: a machine that was frozen would
// else lead beside that one until renewDeadline is over.
type watched struct {
	resourcelock.Interface
	leading <-chan struct{} // closed when this server leads
	stop    func()
}

// Get reads the Lease. It is called when a renewal failed.
func (w watched) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := w.Interface.Get(ctx)
	select {
	case <-w.leading:
		if err == nil && record.HolderIdentity != "" && record.HolderIdentity != w.Identity() {
			w.stop()
		}
	default:
	}
	return record, raw, err
}

// lost is why what is behind must end.
func (l *Leadership) lost(to string) error {
	if to != l.Server && to != "" {
		return fmt.Errorf("server %s leads now: the control plane starts again behind it", to)
	}
	return fmt.Errorf("the Lease %s/%s could not be renewed for %s, and another server may take it: the control plane starts again",
		namespace, lease, renewDeadline)
}

// release gives the Lease back at the end, so that another server leads at its next try. The elector could do it, but
// would also when it has lost touch, with all that is behind still at work.
func release(lock resourcelock.Interface, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	record, _, err := lock.Get(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("giving the lead back: %w", err)
	case record.HolderIdentity != server:
		return errors.New("giving the lead back: it is " + record.HolderIdentity + "'s already")
	}
	now := metav1.Now()
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
}
