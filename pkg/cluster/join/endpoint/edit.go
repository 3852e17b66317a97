package endpoint

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errUnchanged = errors.New("the claim stays as it is")

// edit changes the claim on a name, or makes it. change returns errUnchanged to leave the claim as it is.
func (c Claims) edit(ctx context.Context, name string, change func(*coordinationv1.Lease) error) error {
	err := retry(func() error {
		old, err := c.get(ctx, name)
		if err != nil {
			return err
		}
		claim := editable(old, name)
		if err := change(claim); err != nil {
			return err
		}
		_, err = c.save(ctx, old, claim)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// retry repeats a write that others' writes at the same time make fail.
func retry(write func() error) error {
	for try := 1; ; try++ {
		err := write()
		if try < tries && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)) {
			continue
		}
		return err
	}
}

// editable returns a copy of a claim, or an empty one if it is nil.
func editable(claim *coordinationv1.Lease, name string) *coordinationv1.Lease {
	if claim != nil {
		return claim.DeepCopy()
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: ClaimPrefix + name, Namespace: metav1.NamespaceSystem}}
}

// save writes a claim that was read as old, nil if there was none, and returns it as it is stored.
func (c Claims) save(ctx context.Context, old, claim *coordinationv1.Lease) (saved *coordinationv1.Lease, err error) {
	if old == nil {
		saved, err = c.leases().Create(ctx, claim, metav1.CreateOptions{})
	} else {
		saved, err = c.leases().Update(ctx, claim, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the claim %s: %w", claim.Name, err)
	}
	return saved, nil
}
