package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// watches are those of kinds, by the plural of the kind.
type watches map[string]watching

// watching is the watch of a kind.
type watching struct {
	store cache.Store
	known cache.DoneChecker
	stop  context.CancelFunc
	// unreadable says, of a kind of the Gateway API, that the API server answers with no objects of v1.
	unreadable *atomic.Bool
}

func (w watches) end(plural string) {
	if one, ok := w[plural]; ok {
		one.stop()
		delete(w, plural)
	}
}

func (w watches) endAll() {
	for plural := range w {
		w.end(plural)
	}
}

// has reports whether the objects of a kind are known.
func (w watches) has(plural string) bool {
	one, ok := w[plural]
	return ok && isDone(one.known)
}

// syncTimeout bounds each wait for the objects of a watch: one that never comes in sync must not stop what is served for everybody.
const syncTimeout = 5 * time.Second

// awaitSync waits until the objects of watches are known, and reports whether they are.
func awaitSync(ctx context.Context, known ...cache.DoneChecker) bool {
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	return cache.WaitFor(ctx, "", known...)
}

func isDone(c cache.DoneChecker) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}
