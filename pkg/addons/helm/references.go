package helm

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ref names a Secret, ConfigMap or file that a chart depends on.
type ref struct {
	resource  string // secrets, configmaps, or "" for a file
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

// references watches what charts refer to: each Secret and ConfigMap with a watch of its own and of its metadata only, so
// that it watches nothing that no chart names.
type references struct {
	clients *clients
	charts  string // the directory of files
	changed func(cache.ObjectName)

	mu      sync.Mutex
	follows map[ref]*followed
	files   *fsnotify.Watcher
}

// followed is a watched ref.
type followed struct {
	by     map[cache.ObjectName]bool
	stop   context.CancelFunc
	synced cache.InformerSynced
}

// set replaces the references of a chart. When it returns, later changes are noticed. leading bounds the watches.
func (r *references) set(ctx, leading context.Context, name cache.ObjectName, refs []ref) {
	var fresh []cache.InformerSynced
	r.mu.Lock()
	if r.follows == nil {
		r.follows = map[ref]*followed{}
	}
	wanted := map[ref]bool{}
	for _, one := range refs {
		wanted[one] = true
		f := r.follows[one]
		if f == nil {
			f = &followed{by: map[cache.ObjectName]bool{}}
			r.follows[one] = f
			r.start(leading, one, f)
		}
		if !f.by[name] && f.synced != nil {
			fresh = append(fresh, f.synced)
		}
		f.by[name] = true
	}
	for one, f := range r.follows {
		if f.by[name] && !wanted[one] {
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

// start starts to watch one reference.
func (r *references) start(ctx context.Context, one ref, f *followed) {
	if one.resource == "" {
		f.stop = func() {}
		r.watchFiles(ctx)
		return
	}
	ctx, f.stop = context.WithCancel(ctx)
	resource := r.clients.metadata.Resource(corev1.SchemeGroupVersion.WithResource(one.resource)).Namespace(one.namespace)
	only := fields.OneTermEqualSelector("metadata.name", one.name).String()
	notify := func(any) { r.notify(one) }
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return resource.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return resource.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{},
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, initial bool) {
				if !initial { // the caller reads the object after this
					r.notify(one)
				}
			},
			UpdateFunc: func(old, obj any) {
				if differs(old, obj) {
					notify(obj)
				}
			},
			DeleteFunc: notify,
		},
	})
	f.synced = informer.HasSynced
	go informer.RunWithContext(ctx)
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

// settle is how long the directory of charts must not change before files are read: copying programs write in pieces.
const settle = 200 * time.Millisecond

// watchFiles watches the directory of charts, from the first chart on that is a file in it. Its parent is watched to notice
// that the directory was created again.
func (r *references) watchFiles(ctx context.Context) {
	if r.files != nil {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return // files are still read whenever the HelmChart changes
	}
	if err := watcher.Add(r.charts); err != nil {
		watcher.Close()
		return
	}
	_ = watcher.Add(filepath.Dir(r.charts))
	r.files = watcher
	go func() {
		defer watcher.Close()
		r.followFiles(ctx, watcher)
	}()
}

// followFiles queues charts whose files change, until ctx is done.
func (r *references) followFiles(ctx context.Context, watcher *fsnotify.Watcher) {
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	touched, all := map[string]bool{}, false
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			switch {
			case event.Op == fsnotify.Chmod:
			case filepath.Dir(event.Name) == filepath.Clean(r.charts):
				touched[filepath.Base(event.Name)] = true
				quiet.Reset(settle)
			case event.Name == filepath.Clean(r.charts) && event.Has(fsnotify.Create):
				_ = watcher.Remove(r.charts) // the former directory of the same name
				_ = watcher.Add(r.charts)
				all = true
				quiet.Reset(settle)
			}
		case <-watcher.Errors: // events were lost
			all = true
			quiet.Reset(settle)
		case <-quiet.C:
			for _, name := range r.fileNames() {
				if all || touched[name] {
					r.notify(ref{name: name})
				}
			}
			clear(touched)
			all = false
		}
	}
}

// fileNames are the names of the files that charts refer to.
func (r *references) fileNames() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.follows {
		if one.resource == "" {
			names = append(names, one.name)
		}
	}
	return names
}
