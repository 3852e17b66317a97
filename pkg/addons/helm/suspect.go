package helm

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// afterCrash is how long people have to delete a chart that may have ended the process that was at it.
const afterCrash = 2 * time.Minute

// begun is what this process applies, or is going to.
type begun struct {
	hash string
	from time.Time // not before
}

// lastWrite is how long the end of this process' work waits for acquit.
const lastWrite = 3 * time.Second

// acquit takes back that this process was about to apply a chart, if there is no revision of it yet: the process ends in good
// order, or another one leads, and the chart is not suspect for that. It is no harm if it fails, and nothing is written over
// what another server says meanwhile.
func (c *controller) acquit(name cache.ObjectName) {
	c.mu.Lock()
	b, known := c.begun[name]
	c.mu.Unlock()
	if !known || time.Now().Before(b.from) {
		return
	}
	ctx, enough := context.WithTimeout(context.Background(), lastWrite)
	defer enough()
	clients, err := c.last(ctx)
	if err != nil {
		return
	}
	charts := clients.dynamic.Resource(chartsAPI).Namespace(name.Namespace)
	u, err := charts.Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	ch := outline(u)
	if ch.Status.Attempted != b.hash || ch.Status.reason() != reasonWorking {
		return
	}
	history, err := clients.history(ctx, ch)
	if err != nil || slices.ContainsFunc(history, wish{hash: b.hash}.made) {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"attempted":null}}`, u.GetResourceVersion())
	_, _ = charts.Patch(ctx, name.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "coracle"}, "status")
}

// suspect is how long to wait before a chart is applied. It is 0 unless a process that is no more was about to render just
// this and got no further: maybe by this very chart, and then the API is up only until the next try.
func (c *controller) suspect(ch *chart, w wish) time.Duration {
	name, now := nameOf(ch), time.Now()
	c.mu.Lock()
	b, known := c.begun[name]
	if !known || b.hash != w.hash {
		b = begun{w.hash, now}
		if ch.Status.Attempted == w.hash && ch.Status.reason() == reasonWorking && !slices.ContainsFunc(w.history, w.made) {
			b.from = now.Add(afterCrash)
		}
		c.begun[name] = b
	}
	c.mu.Unlock()
	pause := b.from.Sub(now)
	if pause > 0 {
		c.log.WithField("chart", name.String()).Warnf("the server that was applying the chart was cut short before there was a revision; trying again in %s", pause.Round(time.Second))
		c.tell(name, "the server that was applying it was cut short, by this chart or something else; if the chart may be the cause, delete it before it is tried again at "+
			b.from.UTC().Format(time.TimeOnly+" MST"))
	}
	return pause
}

// made reports whether a revision was made of what should be.
func (w wish) made(r revision) bool { return r.hash == w.hash }
