package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// deployer is the running state of a Manifests. Its methods are called from one goroutine; only applyStage is parallel inside.
type deployer struct {
	Manifests
	client    kubernetes.Interface
	metadata  metadata.Interface
	applier   applier
	inventory map[fileID]record
	files     map[fileID]*file
	log       *logrus.Entry
	reported  []state.Manifest
	dirID     string // identifies the user's directory; "" until it was read
	// scanned is the time of the last read of the user's directory, zero before the first one. After it, a file that is missing
	// from files has been removed.
	scanned time.Time
	// quietSinceStart reports that since the start the user's directory once did not change for settleFiles.
	quietSinceStart bool
	now             func() time.Time // time.Now; another clock in tests
	// others are the objects of other servers' user files; nil until a step removes something.
	others identitySet
}

// parallel is how many files are applied at a time. Within a file there is an order.
const parallel = 4

// applyTimeout is for one object; admission webhooks may take half a minute.
const applyTimeout = 45 * time.Second

// healAfter is when unchanged embedded files are applied again after a start, against drift.
const healAfter = 10 * time.Second

// add adds a file, or replaces it if its content changed.
func (d *deployer) add(f *file) {
	old, ok := d.files[f.id]
	if ok && old.hash == f.hash && old.status.State != state.ManifestSkipped && f.status.State != state.ManifestSkipped {
		return
	}
	if f.id.embedded() && skipped(d.read(), f.id.name) {
		f.due, f.status.State = time.Time{}, state.ManifestSkipped
	}
	if f.id.embedded() && f.due != (time.Time{}) && d.inventory[f.id].hash == f.hash {
		f.due, f.status.State = d.now().Add(healAfter), state.ManifestApplied
	}
	if f.status.State == state.ManifestFailed {
		d.log.WithField("file", f.id.name).Warn("broken manifest: " + f.status.Error)
	}
	f.seen = d.now()
	d.files[f.id] = f
}

// scan reads the user's directory and updates the list of files.
func (d *deployer) scan() {
	found, err := d.look()
	if err != nil {
		d.log.WithField("dir", d.Dir).WithError(err).Warn("the directory of manifests cannot be read; nothing is changed")
		return
	}
	d.scanned = d.now()
	for id := range d.files {
		if !id.embedded() && !slices.ContainsFunc(found, func(f *file) bool { return f.id == id }) {
			delete(d.files, id)
		}
	}
	for _, f := range found {
		d.add(f)
	}
	for _, e := range d.Embedded { // .skip files may have been added or removed
		d.add(newFile(fileID{name: e.Name}, e.Data))
	}
}

// step does everything that is due.
func (d *deployer) step(ctx context.Context) {
	d.report()
	d.others = nil
	todo := d.todo()
	for _, f := range todo {
		f.applied, f.failures = nil, nil
		if err := d.recordIntent(ctx, f); err != nil {
			f.failures = append(f.failures, err)
		}
	}
	for stage := 0; stage <= lastStage; stage++ {
		d.applyStage(ctx, todo, stage)
	}
	wanted := d.wanted()
	for _, f := range todo {
		d.conclude(ctx, f, wanted)
	}
	d.removeGone(ctx, wanted)
	d.report()
}

func (d *deployer) todo() []*file {
	var todo []*file
	for _, f := range d.files {
		if !f.due.IsZero() && !f.due.After(d.now()) {
			todo = append(todo, f)
		}
	}
	slices.SortFunc(todo, func(a, b *file) int { return strings.Compare(a.id.name, b.id.name) })
	return todo
}

// recordIntent records the objects of a user's file before they are created, so that they can be deleted if coracle crashes and the
// file is removed meanwhile. Embedded files are not removed while coracle is down.
func (d *deployer) recordIntent(ctx context.Context, f *file) error {
	if f.id.embedded() {
		return nil
	}
	r := d.known(f.id)
	before := identities(r.objects)
	complete := true
	for _, o := range f.objects {
		e := o.entry()
		if !before.has(e) && o.GetAnnotations()[applyAnnotation] != unlessEdited {
			r.objects = append(slices.Clip(r.objects), e)
			complete = false
		}
	}
	if complete {
		return nil
	}
	return d.save(ctx, record{file: f.id, dirID: d.dirID, objects: r.objects})
}

// known is the record of a file; the zero value if there is none, or an orphaned one.
func (d *deployer) known(id fileID) record {
	if r := d.inventory[id]; !d.orphaned(r) {
		return r
	}
	return record{}
}

func (d *deployer) applyStage(ctx context.Context, todo []*file, stage int) {
	var running errgroup.Group
	running.SetLimit(parallel)
	for _, f := range todo {
		if !slices.ContainsFunc(f.objects, func(o object) bool { return stageOf(o.GetKind()) == stage }) {
			continue
		}
		running.Go(func() error {
			for _, o := range f.objects {
				if stageOf(o.GetKind()) == stage {
					d.applyOne(ctx, f, o)
				}
			}
			return nil
		})
	}
	_ = running.Wait() // failures are in the files
}

func (d *deployer) applyOne(ctx context.Context, f *file, o object) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	e, err := d.applier.apply(ctx, o.Unstructured)
	if f.id.embedded() && invalidField(err) && replaceable(o) {
		// A field that cannot change did: the DNS Service's address, a binding's role. Only coracle writes the object.
		if d.applier.remove(ctx, o.entry()) == nil {
			e, err = d.applier.apply(ctx, o.Unstructured)
		}
	}
	if err != nil {
		f.failures = append(f.failures, &objectError{line: o.line, object: o.entry().String(), err: err})
		return
	}
	if e.Name != "" {
		f.applied = append(f.applied, e)
	}
}

// objectError is what happened to one object of a file.
type objectError struct {
	line   int
	object string
	err    error
}

func (e *objectError) Error() string {
	return fmt.Sprintf("line %d: %s: %s", e.line, e.object, reason(e.err))
}
func (e *objectError) Unwrap() error { return e.err }

func (d *deployer) save(ctx context.Context, r record) error {
	old, exists := d.inventory[r.file]
	if exists && old.hash == r.hash && old.dirID == r.dirID && slices.Equal(old.objects, r.objects) {
		return nil
	}
	if err := r.save(ctx, d.client, exists); err != nil {
		return err
	}
	d.inventory[r.file] = r
	return nil
}
