package helm

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// ref names a Secret, ConfigMap, ServiceAccount or file that a chart depends on.
type ref struct {
	resource  string // secrets, configmaps, serviceaccounts, or "" for a file
	namespace string
	name      string
}

// refsOf lists the references of a HelmChart and its HelmChartConfig whose changes cause a reconciliation.
func refsOf(ch *chart, config overrides, file string) []ref {
	var out []ref
	for _, o := range []overrides{ch.Spec.overrides, config} {
		for _, s := range o.ValuesSecrets {
			if !s.IgnoreUpdates {
				out = append(out, ref{"secrets", ch.Namespace, s.Name})
			}
		}
	}
	if account := ch.Spec.ServiceAccountName; account != "" {
		out = append(out, ref{"serviceaccounts", ch.Namespace, account})
	}
	for _, r := range []reference{ch.Spec.AuthSecret, ch.Spec.DockerRegistrySecret} {
		if r.Name != "" {
			out = append(out, ref{"secrets", ch.Namespace, r.Name})
		}
	}
	if name := ch.Spec.RepoCAConfigMap.Name; name != "" {
		out = append(out, ref{"configmaps", ch.Namespace, name})
	}
	if file != "" {
		out = append(out, ref{name: file})
	}
	return out
}

// references watches what charts refer to: each object with a watch of its own and of its metadata only, so
// that it watches nothing that no chart names.
type references struct {
	clients *clients
	charts  string // the directory of files
	changed func(cache.ObjectName)

	mu      sync.Mutex
	follows map[ref]*followed
}

// followed is a watched ref.
type followed struct {
	by     map[cache.ObjectName]bool
	stop   context.CancelFunc
	synced cache.InformerSynced // nil for a file
}

// set replaces the references of a chart. When it returns, later changes are noticed. leading bounds the watches.
func (r *references) set(ctx, leading context.Context, name cache.ObjectName, refs []ref) {
	var fresh []cache.InformerSynced
	r.mu.Lock()
	if r.follows == nil {
		r.follows = map[ref]*followed{}
	}
	for _, one := range refs {
		f := r.follows[one]
		if f == nil {
			f = r.follow(leading, one)
			r.follows[one] = f
		}
		if !f.by[name] && f.synced != nil {
			fresh = append(fresh, f.synced)
		}
		f.by[name] = true
	}
	for one, f := range r.follows {
		if f.by[name] && !slices.Contains(refs, one) {
			delete(f.by, name)
			if len(f.by) == 0 {
				f.stop()
				delete(r.follows, one)
			}
		}
	}
	r.mu.Unlock()
	if len(fresh) > 0 {
		cache.WaitForCacheSync(ctx.Done(), fresh...)
	}
}

// follow starts to watch one reference.
func (r *references) follow(ctx context.Context, one ref) *followed {
	f := &followed{by: map[cache.ObjectName]bool{}}
	ctx, f.stop = context.WithCancel(ctx)
	if one.resource == "" {
		changes := filewatch.Changes(ctx, func() string { return filewatch.State(filepath.Join(r.charts, one.name)) })
		go func() {
			for {
				select {
				case <-changes:
					r.notify(one)
				case <-ctx.Done():
					return
				}
			}
		}()
		return f
	}
	resource := corev1.SchemeGroupVersion.WithResource(one.resource)
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", one.name).String()
	}
	informer := metadatainformer.NewFilteredMetadataInformer(r.clients.metadata, resource, one.namespace, 0, nil, only).Informer()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial { // the caller reads the object after this
				r.notify(one)
			}
		},
		UpdateFunc: func(old, obj any) {
			if differs(old, obj) {
				r.notify(one)
			}
		},
		DeleteFunc: func(any) { r.notify(one) },
	})
	f.synced = informer.HasSynced
	go informer.RunWithContext(ctx)
	return f
}

// differs reports whether an object changed. A watch that restarts repeats objects, which must not cancel an action.
func differs(old, obj any) bool {
	a, okA := old.(metav1.Object)
	b, okB := obj.(metav1.Object)
	return !okA || !okB || a.GetUID() != b.GetUID() || a.GetResourceVersion() != b.GetResourceVersion()
}

// notify queues all charts with this reference.
func (r *references) notify(one ref) {
	r.mu.Lock()
	var names []cache.ObjectName
	if f := r.follows[one]; f != nil {
		for name := range f.by {
			names = append(names, name)
		}
	}
	r.mu.Unlock()
	for _, name := range names {
		r.changed(name)
	}
}
