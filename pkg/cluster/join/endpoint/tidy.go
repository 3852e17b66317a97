package endpoint

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keyLabel of a claim is the beginning of its holder's key, so that the claims of a key can be found.
const keyLabel = "coracle.io/key"

// shortened returns a key for keyLabel: a label has 63 characters at most.
func shortened(key string) string { return key[:min(len(key), 40)] }

// How long a claim without a Node stays after it was written last: of a machine that has never registered, and of one that has, whose certificate has
// expired by then.
const (
	unregisteredAge = 24 * time.Hour
	expiredAge      = 400 * 24 * time.Hour
)

// Tidy deletes the claims of machines that are gone, such as those in a restored backup, and labels claims of releases before this one. Claims with
// revoked keys stay.
func (c Claims) Tidy(ctx context.Context) error {
	leases, err := c.leases().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the claims on node names: %w", err)
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if name := ClaimedBy(lease.Name); name != "" {
			if err := c.tidy(ctx, lease, name); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

func (c Claims) tidy(ctx context.Context, lease *coordinationv1.Lease, name string) error {
	if !KeysOf(lease).Restricted && abandoned(lease) {
		node, err := c.node(ctx, name)
		if err != nil {
			return err
		}
		if node == nil {
			as := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
			return c.leases().Delete(ctx, lease.Name, as)
		}
	}
	key := holder(lease)
	if key == "" || lease.Labels[keyLabel] == shortened(key) {
		return nil
	}
	claim := editable(lease, name)
	metav1.SetMetaDataLabel(&claim.ObjectMeta, keyLabel, shortened(key))
	_, err := c.save(ctx, lease, claim)
	return err
}

// abandoned reports whether the machine has not come back for long.
func abandoned(lease *coordinationv1.Lease) bool {
	age := unregisteredAge
	if registered(lease) {
		age = expiredAge
	}
	return lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) > age
}
