package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Probe returns once a unit has answered. Every answer counts, also that it is busy, refuses the request or does not work: only one that gives
// none until ctx is done hangs.
type Probe func(ctx context.Context) error

// ProbeWith sets how Group.Probe asks ctx's unit whether it lives. It must be cheap, and must not depend on other machines.
func ProbeWith(ctx context.Context, p Probe) {
	if t, ok := ctx.Value(tellKey{}).(told); ok {
		t.probed(p)
	}
}

// RunsWith reports what ctx's unit was started with. Group.OnSettings gets it.
func RunsWith(ctx context.Context, settings any) {
	if t, ok := ctx.Value(tellKey{}).(told); ok {
		t.settings(settings)
	}
}

func (g *Group) setProbe(u *Unit, p Probe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u.probe = p
}

// Probe asks all ready units that have a probe, at the same time. It returns an error that names those which do not answer until ctx is done.
func (g *Group) Probe(ctx context.Context) error {
	g.mu.Lock()
	asked := map[string]Probe{}
	for _, u := range g.units {
		if u.probe != nil && u.status.State == Ready {
			asked[u.status.Name] = u.probe
		}
	}
	g.mu.Unlock()

	answers := make(chan string, len(asked))
	for name, probe := range asked {
		go func() {
			if _ = probe(ctx); ctx.Err() == nil { // whatever the answer is
				answers <- name
			}
		}()
	}
	for len(asked) > 0 {
		select {
		case name := <-answers:
			delete(asked, name)
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s", strings.Join(slices.Sorted(maps.Keys(asked)), ", "))
		}
	}
	return nil
}
