package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// report logs now and then what is still awaited, until all are ready or the returned function is called.
func (g *Group) report(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ready := g.Ready()
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(g.ReportEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ready:
				return
			case <-tick.C:
				g.Log.Info("still waiting: " + Pending(g.Status()))
			}
		}
	})
	return func() {
		cancel()
		reporter.Wait()
	}
}

// Pending says in one line which units are not ready yet and what each waits for.
func Pending(all []Status) string {
	var parts []string
	for _, s := range all {
		switch {
		case s.State == Starting && s.Waiting != "":
			parts = append(parts, fmt.Sprintf("%s (%s: %s)", s.Name, since(s.Started), s.Waiting))
		case s.State == Starting:
			parts = append(parts, fmt.Sprintf("%s (%s)", s.Name, since(s.Started)))
		case s.State == Waiting:
			parts = append(parts, fmt.Sprintf("%s (needs %s)", s.Name, strings.Join(s.Needs, ", ")))
		}
	}
	return strings.Join(parts, ", ")
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
