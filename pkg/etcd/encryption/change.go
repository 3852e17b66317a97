package encryption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Change changes the keys of a running cluster step by step. Each step ends when all running servers have taken it, so that no server meets a value that
// it cannot read. What is interrupted at any point goes on with the same call.
type Change struct {
	Store
	Who string // this command, for another one that runs at the same time
	// Expected returns the names of the servers that run now, whether or not they follow changes; nil if that is not known.
	Expected func(context.Context) ([]string, error)
	// Tell gets a sentence about each step.
	Tell func(string)

	// Patience is how long a step waits for servers.
	Patience time.Duration
}

var (
	errOff     = errors.New("Secrets are not encrypted in this cluster: switch it on with coracle secrets-encrypt enable")
	errNoSteps = errors.New("there is no new key: begin with coracle secrets-encrypt prepare")
)

// Prepare makes a new key, and waits until all servers can read with it.
func (c Change) Prepare(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		if l.Write == "" {
			return errOff
		}
		return c.prepare(ctx, l)
	})
}

// Rotate has all servers write with the new key.
func (c Change) Rotate(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		if l.Stage != Prepared && l.Stage != Rotated {
			return errNoSteps
		}
		return c.rotate(ctx)
	})
}

// Reencrypt encrypts all Secrets that are encrypted with another key, or not at all, with the key that is written with.
func (c Change) Reencrypt(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		switch {
		case l.Write == "":
			return errOff
		case l.Stage == Prepared:
			return errors.New("servers do not write with the new key yet: run coracle secrets-encrypt rotate before")
		}
		return c.reencrypt(ctx)
	})
}

// RotateKeys does all the steps of a change of the key: those that remain, if it was begun.
func (c Change) RotateKeys(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		if l.Write == "" {
			return errOff
		}
		return c.allSteps(ctx, l)
	})
}

// Enable has all Secrets encrypted in a cluster where they are not.
func (c Change) Enable(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		if l.Write != "" && (l.Stage == Start || l.Stage == Finished) {
			c.Tell("Secrets are encrypted already")
			return nil
		}
		return c.allSteps(ctx, l)
	})
}

// Disable has all Secrets written as they are.
func (c Change) Disable(ctx context.Context) error {
	return c.locked(ctx, func(l Loaded) error {
		k := l.Keys
		k.Write, k.Stage = "", Finished
		if err := c.step(ctx, l, k, "all servers write Secrets as they are"); err != nil {
			return err
		}
		return c.reencrypt(ctx)
	})
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

// locked runs a change while no other command changes the keys.
func (c Change) locked(ctx context.Context, do func(Loaded) error) error {
	unlock, err := c.lock(ctx, c.Who)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := c.Load(ctx)
	if err != nil {
		return err
	}
	return do(l)
}

func (c Change) prepare(ctx context.Context, l Loaded) error {
	k := l.Keys
	if l.Stage != Prepared { // else it was interrupted
		used, err := c.Count(ctx)
		if err != nil {
			return err
		}
		for name := range used {
			if name != "" && name != l.Write {
				return errNotRewritten
			}
		}
		k = k.with(time.Now())
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
	deadline, told := time.Now().Add(c.Patience), ""
	for {
		waits, err := c.lacking(ctx, want)
		if err != nil {
			return err
		}
		if len(waits) == 0 {
			return nil
		}
		names := strings.Join(waits, ", ")
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not use the new keys after %s: see coracle status there, or stop it, and run the same command again", names, c.Patience)
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

// lacking returns the running servers that use other keys than those with the hash.
func (c Change) lacking(ctx context.Context, hash string) ([]string, error) {
	reports, err := c.Servers(ctx)
	if err != nil {
		return nil, err
	}
	expected, err := c.Expected(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		if reports[name].Hash != hash {
			all = append(all, name)
		}
	}
	for _, name := range expected {
		if _, found := reports[name]; !found {
			all = append(all, name)
		}
	}
	return all, nil
}
