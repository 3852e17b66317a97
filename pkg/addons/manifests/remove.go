package manifests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settleFiles is how long a file must not change before objects that it no longer contains are deleted.
const settleFiles = 5 * time.Second

const crd = "CustomResourceDefinition"

// replaceable reports whether an embedded object may be deleted and created again: no other objects are deleted with it,
// and people do not edit it.
func replaceable(o object) bool {
	return o.GetKind() != crd && o.GetKind() != "Namespace" && o.GetAnnotations()[applyAnnotation] != unlessEdited
}

// invalidField reports whether the API server's own validation refused a field, such as one that cannot change. A
// ValidatingAdmissionPolicy answers "invalid" too, but names no field, and would refuse the new object as well.
func invalidField(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// conclude updates the inventory after a try. If the try succeeded, it deletes objects that the file no longer contains.
func (d *deployer) conclude(ctx context.Context, f *file, wanted identitySet) {
	old := d.known(f.id)
	next := record{file: f.id, dirID: d.dirID, hash: f.hash, objects: f.applied}
	if f.id.embedded() {
		next.dirID = ""
	}
	now := identities(f.applied)
	surplus := slices.DeleteFunc(backwards(old.objects), now.has)
	var wait time.Duration
	if len(surplus) > 0 {
		wait = d.unsure(f)
	}
	for _, e := range surplus {
		if len(f.failures) > 0 || wait > 0 {
			next.objects = append(next.objects, e) // remove nothing while the file fails
			continue
		}
		if err := d.removeOne(ctx, f.id, e, wanted); err != nil {
			f.failures = append(f.failures, err)
			next.objects = append(next.objects, e)
		}
	}
	if len(f.failures) > 0 {
		next.hash = ""
	}
	if err := d.save(ctx, next); err != nil {
		f.failures = append(f.failures, err)
	}
	before := f.status
	f.finish(d.now())
	if wait > 0 && len(f.failures) == 0 {
		f.due = d.now().Add(wait)
	}
	d.logOutcome(f, before)
}

// unsure is how long to wait until a file can be taken for complete. A program that copies over it may have paused between
// two documents, and the objects of the missing ones would be deleted. A removed file needs no such time.
func (d *deployer) unsure(f *file) time.Duration {
	if f.id.embedded() {
		return 0
	}
	data, err := os.ReadFile(filepath.Join(d.read(), f.id.name))
	if err != nil || hashOf(data) != f.hash {
		return settleFiles // the file changed since it was read
	}
	return settleFiles - d.now().Sub(f.seen)
}

// removeGone removes the objects of files that are gone. If all of several files are gone at once, the directory was emptied,
// and their records become orphaned instead.
func (d *deployer) removeGone(ctx context.Context, wanted identitySet) {
	if d.scanned.IsZero() {
		return
	}
	wait := d.unsettled()
	var gone []fileID
	users := 0
	for id, r := range d.inventory {
		if _, ok := d.files[id]; !ok && !d.orphaned(r) {
			gone = append(gone, id)
			if !id.embedded() {
				users++
			}
		}
	}
	empty := !slices.ContainsFunc(slices.Collect(maps.Keys(d.files)), func(id fileID) bool { return !id.embedded() })
	emptied := empty && users > 1
	for _, id := range gone {
		switch {
		case !id.embedded() && emptied:
			r := d.inventory[id]
			r.dirID = ""
			if err := d.save(ctx, r); err != nil {
				d.log.WithField("file", id.name).WithError(err).Warn("noting that the directory of manifests was emptied")
			}
		case id.embedded() || wait == 0:
			d.removeFile(ctx, d.inventory[id], wanted)
		}
	}
	if emptied {
		d.warnOfOrphans(nil)
	}
}

// removeFile removes the objects of a file that is gone, and its record.
func (d *deployer) removeFile(ctx context.Context, r record, wanted identitySet) {
	var left []entry
	for _, e := range backwards(r.objects) {
		if err := d.removeOne(ctx, r.file, e, wanted); err != nil {
			d.log.WithField("file", r.file.name).WithError(err).Warn("removing an object of a manifest that is gone")
			left = append(left, e)
		}
	}
	r.objects = left
	if len(left) > 0 {
		_ = d.save(ctx, r) // if it fails, the record lists objects that are deleted, which does no harm
		return
	}
	if err := r.remove(ctx, d.client); err == nil {
		delete(d.inventory, r.file)
		d.log.WithField("file", r.file.name).Info("manifest removed")
	}
}

// backwards returns entries in the order of removal, namespaces last.
func backwards(entries []entry) []entry {
	out := slices.Clone(entries)
	slices.SortStableFunc(out, func(a, b entry) int { return stageOf(b.Kind) - stageOf(a.Kind) })
	return out
}

// removeOne deletes an object unless a file contains it, on this server or another. CRDs of embedded files are never deleted:
// all their objects would be deleted with them, such as every HelmChart, and an older server would do that to a newer one.
func (d *deployer) removeOne(ctx context.Context, id fileID, e entry, wanted identitySet) error {
	if wanted.has(e) || id.embedded() && e.Kind == crd {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if d.others == nil {
		var err error
		if d.others, err = loadOthers(ctx, d.client, d.Node); err != nil {
			return fmt.Errorf("removing %s: %w", e, err)
		}
	}
	if d.others.has(e) {
		return nil
	}
	if err := d.applier.remove(ctx, e); err != nil {
		return fmt.Errorf("removing %s: %s", e, reason(err))
	}
	d.log.WithFields(logrus.Fields{"file": id.name, "object": e.String()}).Info("removed")
	return nil
}
