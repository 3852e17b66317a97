package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// keep starts the watches of those kinds that are defined, and stops those of others. It returns an error while objects are not known that may
// come soon, as after an installation.
func (f *apiFeed) keep(ctx context.Context, w watches, kinds map[string]runtime.Object) error {
	asked := false
	var waiting []cache.DoneChecker
	for plural, object := range kinds {
		if _, watched := w[plural]; !f.defined(plural) {
			w.end(plural)
			delete(f.late, plural)
			continue
		} else if !watched {
			if !asked && (!f.tooLate(plural) || time.Since(f.asked) >= askAgain) {
				asked = true
				if err := f.askKinds(ctx); err != nil {
					return err
				}
			}
			if f.kinds[plural] {
				w[plural] = f.watch(ctx, plural, object)
				delete(f.late, plural)
			}
		}
		if one, ok := w[plural]; ok && !f.tooLate(plural) {
			waiting = append(waiting, one.known)
		}
	}
	awaitSync(ctx, waiting...)
	var late error
	for _, plural := range slices.Sorted(maps.Keys(kinds)) {
		if w.has(plural) || !f.defined(plural) {
			delete(f.late, plural)
		} else if err := f.without(w, plural); late == nil {
			late = err
		}
	}
	return late
}

const (
	// kindTimeout is how long a kind is waited for that is defined and that the API server does not serve.
	kindTimeout = time.Minute
	// askAgain is the time between two questions for the kinds that the API server serves, while it lacks only some that are not waited for.
	askAgain = 20 * time.Second
)

func (f *apiFeed) tooLate(plural string) bool {
	since, late := f.late[plural]
	return late && time.Since(since) >= kindTimeout
}

// without returns nil when the gateway goes on without a kind, such as one of an older definition that the API server does not serve as v1: what has
// nothing to do with it must not wait for ever. Objects that only take long to come are waited for: without them routes that are served would go.
func (f *apiFeed) without(w watches, plural string) error {
	if _, late := f.late[plural]; !late {
		f.late[plural] = time.Now()
	}
	if one, watched := w[plural]; !f.tooLate(plural) || watched && !one.unreadable.Load() {
		return fmt.Errorf("the API server has not answered with all %s of the Gateway API as v1 yet", plural)
	}
	f.lacking = append(f.lacking, plural)
	return nil
}

// askKinds asks which kinds the API server serves.
func (f *apiFeed) askKinds(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	data, err := f.client.Get().AbsPath("/apis/" + v1.GroupVersion.String()).Do(ctx).Raw()
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking which kinds of the Gateway API are served: %w", err)
	}
	f.kinds, f.asked = map[string]bool{}, time.Now()
	for _, r := range list.APIResources {
		f.kinds[r.Name] = true
	}
	return nil
}

// watch starts the watch of a kind.
func (f *apiFeed) watch(ctx context.Context, plural string, object runtime.Object) watching {
	ctx, stop := context.WithCancel(ctx)
	w := watching{stop: stop, unreadable: new(atomic.Bool)}
	source := cache.NewListWatchFromClient(f.client, plural, "", fields.Everything())
	list := source.ListWithContextFunc
	source.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		all, err := list(ctx, o)
		w.unreadable.Store(apierrors.IsNotFound(err) || errors.As(err, new(*json.UnmarshalTypeError)))
		return all, err
	}
	w.store, w.known = f.feed.watch(ctx, cache.NewSharedIndexInformer(source, object, 0, cache.Indexers{}), trimAPI)
	return w
}
