package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/test/hosts"
)

// await waits for the effect of a fault. The test fails if it does not occur within patience.
func (a *arena) await(what string, check func() error) {
	a.t.Helper()
	began := time.Now()
	hosts.Eventually(a.t, patience, check)
	a.t.Logf("%s after %s", what, short(time.Since(began)))
}

// awaitServed waits until every client has had a write and a read answered that it began after the call. It leaves out
// clients on the given hosts and on those that are down.
func (a *arena) awaitServed(but ...*hosts.Host) {
	a.t.Helper()
	from := a.load.seen.now()
	a.await("clients are served", func() error {
		ops := a.load.seen.all()
		for _, c := range a.clients {
			if c.gate.isDown() || slices.ContainsFunc(but, func(h *hosts.Host) bool { return h.Name == c.host }) {
				continue
			}
			for _, k := range []kind{create, read} {
				if !slices.ContainsFunc(ops, func(o op) bool { return o.client == c.host && o.kind == k && o.call > from && o.acknowledged }) {
					return fmt.Errorf("the client on %s is not served", c.host)
				}
			}
		}
		return nil
	})
}

// awaitWrites waits until the load has had the least number of writes acknowledged that the fault does not undo: few clients take longer than many.
func (a *arena) awaitWrites(f fault) {
	a.t.Helper()
	a.await("enough writes are acknowledged", func() error {
		v := verdict{}
		for _, o := range f.left(a.load.seen.began, a.load.seen.all()) {
			v.count(o)
		}
		if v.acknowledged < leastWrites {
			return fmt.Errorf("only %d writes are acknowledged", v.acknowledged)
		}
		return nil
	})
}

// awaitLeaderless waits until a server's etcd member follows no leader and its API server says that it is not ready.
func (a *arena) awaitLeaderless(h *hosts.Host) {
	a.t.Helper()
	a.await(h.Name+" knows that it is cut off", func() error {
		err := a.Etcd(h, func(ctx context.Context, client *clientv3.Client, endpoint string) error {
			status, err := client.Status(ctx, endpoint)
			if err == nil && status.Leader != 0 {
				err = fmt.Errorf("%s still follows a leader", h.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := a.direct[h.Name].Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return fmt.Errorf("%s still says that it is ready", h.Name)
		}
		return nil
	})
}

// controllers is the identity of who leads the controllers, which have one Lease together, as another server than the given one says.
func (a *arena) controllers(h *hosts.Host) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	lease, err := a.direct[a.others(h)[0].Name].CoordinationV1().Leases("kube-system").Get(ctx, "coracle-control-plane", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("nobody leads the controllers")
	}
	return *lease.Spec.HolderIdentity, nil
}

// awaitOtherControllers waits until another host than the given one leads the controllers.
func (a *arena) awaitOtherControllers(h *hosts.Host) {
	a.t.Helper()
	a.await("another host than "+h.Name+" leads the controllers", func() error {
		holder, err := a.controllers(h)
		if err == nil && strings.Contains(holder, h.Name) {
			err = fmt.Errorf("%s leads the controllers", h.Name)
		}
		return err
	})
}

// leadControllers makes a server lead the controllers: it is given the Lease, and renews it.
func (a *arena) leadControllers(h *hosts.Host) {
	a.t.Helper()
	leases := a.direct[h.Name].CoordinationV1().Leases("kube-system")
	patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q}}`, h.Name)
	given, err := leases.Patch(a.t.Context(), "coracle-control-plane", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.await(h.Name+" leads the controllers", func() error {
		lease, err := leases.Get(a.t.Context(), "coracle-control-plane", metav1.GetOptions{})
		if err == nil && (*lease.Spec.HolderIdentity != h.Name || lease.Spec.RenewTime.Equal(given.Spec.RenewTime)) {
			err = fmt.Errorf("the Lease is %s's, renewed %s", *lease.Spec.HolderIdentity, lease.Spec.RenewTime)
		}
		return err
	})
	if _, err := a.healed(time.Time{}, nil, patience); err != nil {
		a.t.Error(err)
	}
}

// awaitStart waits until the control plane on a host, which was killed, answers, or was started so often that it cannot.
func (a *arena) awaitStart(h *hosts.Host, restarts int) {
	a.t.Helper()
	a.await("the control plane on "+h.Name+" was started", func() error {
		now := a.Running(h).Restarts()
		if now > restarts+1 {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := a.direct[h.Name].Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if now == restarts {
			err = errors.Join(err, errors.New("it has not been started"))
		}
		return err
	})
}
