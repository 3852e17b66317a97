package endpoint

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	leaseclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Claims record which machine owns which node name: one Lease in kube-system for each name, whose holder is the hash of the
// machine's public key.
type Claims struct {
	Client kubernetes.Interface
	Log    logrus.FieldLogger
}

// ClaimPrefix is the prefix of the Leases' names. The node name follows.
const ClaimPrefix = "coracle-node-"

// ClaimAge is how long a claim is valid without a Node: the time that a machine has to register after it joined. See Registered.
const ClaimAge = time.Minute

// tries limits the attempts to write a claim when other servers write it at the same time.
const tries = 5

// Take claims the node name for the machine with the key. If another machine may own the name, mayReplace is called with that machine's
// Node, or nil if it has not registered yet; unless it returns an error, that machine is revoked and its Node deleted.
func (c Claims) Take(ctx context.Context, name, key string, mayReplace func(*corev1.Node) error) error {
	return retry(func() error { return c.take(ctx, name, key, mayReplace) })
}

func (c Claims) take(ctx context.Context, name, key string, mayReplace func(*corev1.Node) error) error {
	lease, err := c.get(ctx, name)
	switch {
	case err != nil:
		return err
	case KeysOf(lease).Revoked(key):
		return removed(name)
	case holder(lease) == key:
		return c.write(ctx, lease, editable(lease, name), key, joining)
	}
	node, err := c.node(ctx, name)
	if err != nil {
		return err
	}
	if node != nil || lease != nil && young(lease) {
		if err := mayReplace(node); err != nil {
			return err
		}
	}
	claim := editable(lease, name)
	if node != nil || holder(lease) != "" { // first, so that the former machine is refused even if the rest fails
		restrict(claim, node != nil || registered(lease))
		if lease, err = c.save(ctx, lease, claim); err != nil {
			return err
		}
		claim = editable(lease, name)
	}
	if err := c.clear(ctx, name, node); err != nil {
		return err
	}
	return c.write(ctx, lease, claim, key, joining)
}

// clear deletes the Node and the pods of the machine that had a node name, before another one has it. node is nil if there is none.
func (c Claims) clear(ctx context.Context, name string, node *corev1.Node) error {
	if node != nil {
		gone := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))}
		if err := c.Client.CoreV1().Nodes().Delete(ctx, name, gone); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting node %s, which is replaced: %w", name, err)
		}
		c.Log.Infof("deleted node %s: another machine takes its place", name)
	}
	return c.Evict(ctx, name)
}

// Former returns the other node names that the machine with the key had. It refuses a machine that was removed under any name.
func (c Claims) Former(ctx context.Context, name, key string) (former []string, err error) {
	var leases []coordinationv1.Lease
	for _, selector := range []string{RestrictedLabel, keyLabel + "=" + shortened(key) + ",!" + RestrictedLabel} {
		list, err := c.leases().List(ctx, metav1.ListOptions{LabelSelector: selector}) // not from a cache, which may not have a revocation yet
		if err != nil {
			return nil, fmt.Errorf("listing the claims for former names of node %s: %w", name, err)
		}
		leases = append(leases, list.Items...)
	}
	for i := range leases {
		lease := &leases[i]
		other := ClaimedBy(lease.Name)
		switch {
		case other == "" || other == name:
		case KeysOf(lease).Revoked(key):
			return nil, removed(other)
		case holder(lease) == key:
			former = append(former, other)
		}
	}
	return former, nil
}

// Rename gives up the former names of the machine with the key, whose certificates are refused from then on, and deletes their Nodes. Only
// the claims tell that those nodes will not come back.
func (c Claims) Rename(ctx context.Context, former []string, name, key string) error {
	for _, old := range former {
		node, err := c.node(ctx, old) // read before the claim, so that it is not that of another machine which takes the name meanwhile
		if err != nil {
			return err
		}
		var its bool
		err = c.edit(ctx, old, func(claim *coordinationv1.Lease) error {
			if its = holder(claim) == key; !its {
				return errUnchanged
			}
			restrict(claim, false) // the key is the machine's under its new name
			return nil
		})
		if err != nil {
			return err
		}
		if !its || node == nil {
			continue
		}
		gone := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))}
		if err := c.Client.CoreV1().Nodes().Delete(ctx, old, gone); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting node %s, which is node %s now: %w", old, name, err)
		}
		c.Log.Infof("deleted node %s: that machine is now node %s", old, name)
	}
	return nil
}

// Adopt claims the name for a server, without a token, and reports whether the server owns it. If there is a Node of that name, mine must
// return that it is this server's; claimed is whether another machine has a claim on the name.
func (c Claims) Adopt(ctx context.Context, name, key string, mine func(node *corev1.Node, claimed bool) bool) (bool, error) {
	lease, err := c.get(ctx, name)
	if err != nil || KeysOf(lease).Revoked(key) {
		return false, err
	}
	if holder(lease) == key {
		return true, nil
	}
	node, err := c.node(ctx, name)
	if err != nil || node != nil && !mine(node, lease != nil) {
		return false, err
	}
	return true, c.write(ctx, lease, editable(lease, name), key, joining)
}

// Check refuses a machine whose node name belongs to another machine, or whose node was removed.
func (c Claims) Check(ctx context.Context, name, key string) error {
	_, err := c.check(ctx, name, key)
	return err
}

func (c Claims) check(ctx context.Context, name, key string) (*coordinationv1.Lease, error) {
	lease, err := c.get(ctx, name)
	switch {
	case err != nil || holder(lease) == key:
		return lease, err
	case KeysOf(lease).Revoked(key):
		return nil, removed(name)
	case lease != nil:
		return nil, newRefusal(http.StatusForbidden, "node name %s is another machine's now: give this machine another name with --node-name and join again", name)
	}
	node, err := c.node(ctx, name)
	if err == nil && node == nil {
		err = newRefusal(http.StatusForbidden, "node %s was removed from the cluster: join again with a token", name)
	}
	return nil, err
}

// checkHolder refuses a machine unless its key is recorded for the node name. A certificate that has expired proves no more than the key.
func (c Claims) checkHolder(ctx context.Context, name, key string) error {
	lease, err := c.check(ctx, name, key)
	if err == nil && holder(lease) != key {
		err = newRefusal(http.StatusForbidden, "the cluster does not know the machine of node %s any more: join again with a token", name)
	}
	return err
}

// Renew does the same as Check and sets the claim's renew time.
func (c Claims) Renew(ctx context.Context, name, key string) error {
	lease, err := c.check(ctx, name, key)
	if err != nil {
		return err
	}
	return c.write(ctx, lease, editable(lease, name), key, renewing)
}

func (c Claims) leases() leaseclient.LeaseInterface {
	return c.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
}

// get returns the claim of a name, nil if there is none.
func (c Claims) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	lease, err := c.leases().Get(ctx, ClaimPrefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim on node name %s: %w", name, err)
	}
	return lease, nil
}

// node returns the Node with a name, nil if there is none.
func (c Claims) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for node %s: %w", name, err)
	}
	return node, nil
}

// Values of write's parameter: whether the machine joins or was a node before.
const joining, renewing = true, false

// write makes claim the machine's, and saves it. It was read as old.
func (c Claims) write(ctx context.Context, old, claim *coordinationv1.Lease, key string, joins bool) error {
	now := metav1.NowMicro()
	if joins || old == nil {
		claim.Spec.AcquireTime = &now
	}
	claim.Spec.HolderIdentity, claim.Spec.RenewTime = &key, &now
	metav1.SetMetaDataLabel(&claim.ObjectMeta, keyLabel, shortened(key))
	_, err := c.save(ctx, old, claim)
	return err
}

func holder(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// young reports whether the machine joined so recently that its Node may still appear.
func young(lease *coordinationv1.Lease) bool {
	return lease.Spec.AcquireTime != nil && time.Since(lease.Spec.AcquireTime.Time) < ClaimAge
}

// registered reports whether the machine has made its Node; one that was only too slow may join again with its key.
func registered(lease *coordinationv1.Lease) bool { return lease.Spec.AcquireTime == nil }

// ClaimedBy returns the node name that a Lease claims, "" for other Leases.
func ClaimedBy(lease string) string {
	name, _ := strings.CutPrefix(lease, ClaimPrefix)
	if name == lease {
		return ""
	}
	return name
}
