package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// RestrictedLabel is a label of the claims whose name only recorded keys may use, because a machine with the name was removed or replaced. A
// finalizer of the same name keeps these claims: the release before this one deletes claims without a Node.
const RestrictedLabel = "coracle.io/revoked"

// Annotations of restricted claims: fingerprints, separated by spaces. The holder's key is allowed too.
const (
	revokedAnnotation = "coracle.io/revoked-keys"
	allowedAnnotation = "coracle.io/allowed-keys"
)

// maxKeys limits the recorded keys. A kubelet makes one a year, and one for each request that it gave up.
const maxKeys = 20

// maxRevoked limits the revoked keys of a name, so that the claim can always be written. A key that is forgotten stays refused, but its machine
// may join again with a token.
const maxRevoked = 500

// Keys are the keys that may use a node name, as fingerprints of pki.Fingerprint.
type Keys struct {
	// Restricted means that only recorded keys may use the name. Otherwise each key with a certificate may.
	Restricted       bool
	allowed, revoked []string
}

// KeysOf returns the keys of a claim, which may be nil.
func KeysOf(claim *coordinationv1.Lease) Keys {
	if claim == nil || claim.Labels[RestrictedLabel] == "" {
		return Keys{}
	}
	k := Keys{Restricted: true, allowed: strings.Fields(claim.Annotations[allowedAnnotation]), revoked: strings.Fields(claim.Annotations[revokedAnnotation])}
	if h := holder(claim); h != "" {
		k.allowed = append(k.allowed, h)
	}
	return k
}

// Allows reports whether a key may use the name.
func (k Keys) Allows(key string) bool { return !k.Restricted || slices.Contains(k.allowed, key) }

// Revoked reports whether a key identified a machine that was removed or replaced. It is never allowed again.
func (k Keys) Revoked(key string) bool { return slices.Contains(k.revoked, key) }

// Includes reports whether each key that other allows is allowed.
func (k Keys) Includes(other Keys) bool {
	return !k.Restricted || other.Restricted && !slices.ContainsFunc(other.allowed, func(key string) bool { return !k.Allows(key) })
}

// restrict makes a claim refuse all keys but those that are recorded from now on. With revoke the holder's key can never join again.
func restrict(claim *coordinationv1.Lease, revoke bool) {
	metav1.SetMetaDataLabel(&claim.ObjectMeta, RestrictedLabel, "true")
	if !slices.Contains(claim.Finalizers, RestrictedLabel) && claim.DeletionTimestamp == nil {
		claim.Finalizers = append(claim.Finalizers, RestrictedLabel)
	}
	revoked := strings.Fields(claim.Annotations[revokedAnnotation])
	if h := holder(claim); revoke && h != "" && !slices.Contains(revoked, h) {
		revoked = append(revoked, h)
	}
	revoked = revoked[max(0, len(revoked)-maxRevoked):]
	delete(claim.Annotations, machineAnnotation) // of a release before this one, which did not limit it
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, revokedAnnotation, strings.Join(revoked, " "))
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, allowedAnnotation, "")
	delete(claim.Labels, keyLabel)
	claim.Spec.HolderIdentity, claim.Spec.AcquireTime = nil, nil
}

// Holder returns the key of the machine that has a node name, "" if none has.
func (c Claims) Holder(ctx context.Context, name string) (key string, err error) {
	claim, err := c.get(ctx, name)
	return holder(claim), err
}

// Revoke refuses the machine with the key, which has a node name, from now on, and frees the name. It is an error if another machine has it now.
func (c Claims) Revoke(ctx context.Context, name, key string) error {
	return c.edit(ctx, name, func(claim *coordinationv1.Lease) error {
		if h := holder(claim); h != "" && h != key {
			return newRefusal(http.StatusConflict, "another machine has joined as node %s since: the name is that machine's", name)
		}
		restrict(claim, true)
		return nil
	})
}

// Allow records another key of the machine that has a node name, if the name is restricted. by is the key with which the machine asks for
// that. The error is one of IsRefusal if that key may not use the name.
func (c Claims) Allow(ctx context.Context, name, by, key string) error {
	return c.edit(ctx, name, func(claim *coordinationv1.Lease) error {
		keys := KeysOf(claim)
		switch {
		case !keys.Allows(by):
			return newRefusal(http.StatusForbidden, "it was not requested with a key of the machine that is node %s now", name)
		case keys.Allows(key):
			return errUnchanged
		}
		recorded := strings.Fields(claim.Annotations[allowedAnnotation])
		if i := slices.Index(recorded, by); i >= 0 { // it is in use, so it is the last to be forgotten
			recorded = append(slices.Delete(recorded, i, i+1), by)
		}
		recorded = append(recorded, key)
		claim.Annotations[allowedAnnotation] = strings.Join(recorded[max(0, len(recorded)-maxKeys):], " ")
		return nil
	})
}

// Registered records that the machine that has a node name has made its Node: when the Node is deleted, the name is free at once.
func (c Claims) Registered(ctx context.Context, name string) error {
	return c.edit(ctx, name, func(claim *coordinationv1.Lease) error {
		if claim.Spec.AcquireTime == nil {
			return errUnchanged
		}
		claim.Spec.AcquireTime = nil
		return nil
	})
}

// IsRefusal reports whether an error refuses a machine; otherwise the API could not be asked.
func IsRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// removed is the refusal of a key that was revoked.
func removed(name string) error {
	return &refusal{http.StatusForbidden, Removed(name), join.ReasonRemoved}
}

// Removed is the message for a machine that was removed or replaced.
func Removed(name string) string {
	return fmt.Sprintf("node %s was removed from the cluster, or another machine has replaced it: run coracle reset on this machine, "+
		"then join again with a token", name)
}

// Evict deletes the pods of a node that is gone: their service accounts' tokens, which the machine has, are valid as long as they exist.
func (c Claims) Evict(ctx context.Context, name string) error {
	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return fmt.Errorf("listing the pods of node %s: %w", name, err)
	}
	now := metav1.NewDeleteOptions(0)
	for _, pod := range pods.Items {
		now.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		if err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *now); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s/%s of node %s: %w", pod.Namespace, pod.Name, name, err)
		}
	}
	return nil
}

// checkServer refuses a member of etcd for a server that was removed and has not joined again.
func (c Claims) checkServer(ctx context.Context, name string) error {
	claim, err := c.get(ctx, name)
	if err == nil && KeysOf(claim).Restricted && holder(claim) == "" {
		err = removed(name)
	}
	return err
}
