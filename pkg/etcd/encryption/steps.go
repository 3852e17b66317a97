package encryption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
)

// locked runs a change while no other command changes the keys.
func (c Change) locked(ctx context.Context, do func(context.Context, Loaded) error) error {
	return c.Locked(ctx, func(ctx context.Context) error {
		l, err := c.Load(ctx)
		if err != nil {
			return err
		}
		return do(ctx, l)
	})
}

// Locked runs a change of the record while no other command changes it.
func (c Change) Locked(ctx context.Context, do func(context.Context) error) error {
	locked, unlock, err := c.Lock(ctx, c.Who)
	if err != nil {
		return err
	}
	defer unlock()
	err = do(locked)
	if err != nil && locked.Err() != nil && ctx.Err() == nil { // the lock was lost
		err = context.Cause(locked)
	}
	return err
}

func (c Change) prepare(ctx context.Context, l Loaded) error {
	k := l.Keys
	if l.Stage != Prepared { // else it was interrupted
		next, dropped := k.with(time.Now())
		if dropped != "" {
			if err := c.await(ctx, k); err != nil { // nobody writes with it
				return err
			}
			used, err := c.Count(ctx)
			if err != nil {
				return err
			}
			if used[dropped] > 0 {
				return errNotRewritten
			}
		}
		k = next
	}
	return c.step(ctx, l, k, "all servers can read with the new "+k.newest())
}

func (c Change) rotate(ctx context.Context) error {
	l, err := c.Load(ctx)
	if err != nil {
		return err
	}
	// All servers must be able to read what the first of them writes, also after an interruption of the step before.
	if err := c.await(ctx, l.Keys); err != nil {
		return err
	}
	k := l.Keys
	k.Write, k.Stage = k.newest(), Rotated
	return c.step(ctx, l, k, "all servers write with "+k.Write)
}

// step saves the keys and waits until all running servers use them.
func (c Change) step(ctx context.Context, l Loaded, k Keys, done string) error {
	if err := c.save(ctx, l, k); err != nil {
		return err
	}
	if err := c.await(ctx, k); err != nil {
		return err
	}
	c.Tell(done)
	return nil
}

func (c Change) reencrypt(ctx context.Context) error {
	l, err := c.Load(ctx)
	if err != nil {
		return err
	}
	if err := c.await(ctx, l.Keys); err != nil {
		return err
	}
	last := time.Now()
	changed, err := c.rewrite(ctx, l.Keys, func(done int) {
		if time.Since(last) > time.Second {
			last = time.Now()
			c.Tell(fmt.Sprintf("%d Secrets were looked at", done))
		}
	})
	if err != nil {
		return err
	}
	k := l.Keys
	k.Stage = Finished
	if err := c.save(ctx, l, k); err != nil {
		return err
	}
	how := "with " + k.Write
	if k.Write == "" {
		how = "as they are"
	}
	c.Tell(fmt.Sprintf("%d Secrets were written %s", changed, how))
	return nil
}

// await waits until all running servers use the keys.
func (c Change) await(ctx context.Context, k Keys) error {
	_, want, err := k.Config()
	if err != nil {
		return err
	}
	return c.Await(ctx, want, "the new keys")
}

// Await waits until all running servers report a hash: that they use what is named.
func (c Change) Await(ctx context.Context, want, what string) error {
	deadline, told := time.Now().Add(c.Patience), ""
	for {
		_, waits, err := c.Reports(ctx, want)
		if err != nil {
			return err
		}
		if len(waits) == 0 {
			return nil
		}
		names := strings.Join(waits, ", ")
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s this still waits for %s to use %s: see coracle status there, or stop it, and run the same command again", c.Patience, names, what)
		}
		if names != told {
			if told = names; time.Now().After(deadline.Add(5*time.Second - c.Patience)) {
				c.Tell("waiting for " + names)
			}
		}
		if err := lifecycle.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Reports returns what the servers report, and describes the running ones that do not report the hash.
func (c Change) Reports(ctx context.Context, hash string) (reports map[string]Report, lacking []string, err error) {
	if reports, err = c.Servers(ctx); err != nil {
		return nil, nil, err
	}
	running, atLeast, err := c.Running(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		if reports[name].Hash != hash {
			lacking = append(lacking, name)
		}
	}
	for _, name := range running {
		if _, found := reports[name]; !found {
			lacking = append(lacking, name)
		}
	}
	if n := atLeast - len(reports); n > 0 && len(lacking) == 0 {
		lacking = append(lacking, quantity.Count(n, "server that has", "servers that have")+" not reported what it uses")
	}
	return reports, lacking, nil
}

// allSteps does the steps that l lacks.
func (c Change) allSteps(ctx context.Context, l Loaded) error {
	if l.Stage != Prepared && l.Stage != Rotated {
		if err := c.prepare(ctx, l); err != nil {
			return err
		}
	}
	if err := c.rotate(ctx); err != nil {
		return err
	}
	return c.reencrypt(ctx)
}
