package helmcharts

import (
	"slices"
	"time"
)

// afterCrash is how long people have to delete a chart that may have ended the process that was at it.
const afterCrash = 2 * time.Minute

// begun is what this process applies, or is going to.
type begun struct {
	hash string
	from time.Time // not before
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
		c.log.WithField("chart", name.String()).Warnf("whoever was applying the chart ended before it was rendered; trying again in %s", pause.Round(time.Second))
		c.tell(name, "the server that was applying it ended, maybe because of it; delete it unless it is to be tried again at "+b.from.UTC().Format(time.TimeOnly+" MST"))
	}
	return pause
}

// made reports whether a revision was made of what should be.
func (w wish) made(r revision) bool { return r.hash == w.hash }
