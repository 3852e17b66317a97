package localstorage

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// filtered is a watch of some of the objects. It reports an object that does not match, or not any more, as deleted.
type filtered struct {
	source watch.Interface
	out    chan watch.Event
	done   chan struct{}
	once   sync.Once
}

func filter(source watch.Interface, keep func(runtime.Object) bool) watch.Interface {
	f := &filtered{source: source, out: make(chan watch.Event), done: make(chan struct{})}
	go f.run(keep)
	return f
}

func (f *filtered) run(keep func(runtime.Object) bool) {
	defer close(f.out)
	for e := range f.source.ResultChan() {
		if (e.Type == watch.Added || e.Type == watch.Modified) && !keep(e.Object) {
			e.Type = watch.Deleted
		}
		select {
		case f.out <- e:
		case <-f.done:
			return
		}
	}
}

// Stop ends the watch.
func (f *filtered) Stop() {
	f.once.Do(func() { close(f.done) })
	f.source.Stop()
}

// ResultChan returns the channel of the events.
func (f *filtered) ResultChan() <-chan watch.Event { return f.out }
