package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
)

// withdrawTimeout is how long a unit may take to stop after one that it needs was withdrawn.
const withdrawTimeout = 5 * time.Second

// Withdraw makes ctx's unit stand by because of why, after it was ready. The units that need it are stopped in order, wait, and start
// again when it calls ready again. Withdraw returns nil when all have stopped. If one still runs after five seconds, the group ends
// with an error that names it and why, and so does Withdraw.
func Withdraw(ctx context.Context, why error) error {
	if t, ok := ctx.Value(tellKey{}).(told); ok {
		return t.withdraw(why)
	}
	return nil
}

func (g *Group) withdraw(ctx context.Context, u *Unit, why error) error {
	g.standBy(u, why.Error(), true)
	g.stopUsers(u, why)
	return ctx.Err()
}

// stopUsers stops the units that need u, because of why, and returns when they have ended.
func (g *Group) stopUsers(u *Unit, why error) {
	g.mu.Lock()
	select {
	case <-u.serving:
		u.serving = make(chan struct{})
	default:
	}
	for user := range u.users {
		user.stop(why)
	}
	g.mu.Unlock()
	g.awaitUsers(u)
}

// awaitUsers returns when no unit that needs u runs.
func (g *Group) awaitUsers(u *Unit) {
	for {
		g.mu.Lock()
		count, freed := len(u.users), u.freed
		g.mu.Unlock()
		if count == 0 {
			return
		}
		<-freed
	}
}

// awaitNeeds returns when u may start, or with an error when ctx is done. The returned context is done when u must stop.
func (g *Group) awaitNeeds(ctx context.Context, u *Unit) (context.Context, error) {
	for {
		for _, n := range u.needs {
			if err := g.awaitUnit(ctx, u, n); err != nil {
				return nil, err
			}
		}
		if needed, err := g.use(ctx, u); needed != nil || err != nil {
			return needed, err
		}
	}
}

// awaitUnit returns when n, which u needs, is ready.
func (g *Group) awaitUnit(ctx context.Context, u, n *Unit) error {
	g.mu.Lock()
	serving := n.serving
	g.mu.Unlock()
	select {
	case <-serving:
		return nil
	default:
	}
	select {
	case <-serving:
		return nil
	case <-n.standby:
		g.standBy(u, "", false) // the group must not wait for u either
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-serving:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// use makes u a user of what it needs. It returns no context if one of these was withdrawn meanwhile, and an error if the group stops: a unit must
// not see that all its users have ended and then get another one.
func (g *Group) use(ctx context.Context, u *Unit) (needed context.Context, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, n := range u.needs {
		select {
		case <-n.serving:
		default:
			return nil, nil
		}
	}
	needed, u.stop = context.WithCancelCause(ctx)
	for _, n := range u.needs {
		n.users[u] = true
	}
	return needed, nil
}

// release lets the units that u needs stop.
func (g *Group) release(u *Unit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u.stop(errors.New("it has ended"))
	for _, n := range u.needs {
		if n.users[u] {
			delete(n.users, u)
			close(n.freed)
			n.freed = make(chan struct{})
		}
	}
}

// readyFunc returns the function by which u says that it is ready, until ctx is done.
func (g *Group) readyFunc(ctx context.Context, u *Unit, log logrus.FieldLogger) func() {
	return func() {
		g.mu.Lock()
		select {
		case <-u.serving: // it was ready already
			g.mu.Unlock()
			return
		default:
		}
		if ctx.Err() != nil {
			g.mu.Unlock()
			return
		}
		first := u.status.Ready.IsZero()
		if first {
			u.status.Ready = time.Now()
		}
		u.status.State, u.status.Waiting = Ready, ""
		took := time.Since(u.status.Began())
		close(u.serving)
		g.mu.Unlock()
		g.notify()
		log.WithField("took", took.Round(time.Millisecond)).Info("ready")
		if first {
			close(u.ready)
		}
	}
}
