package encryption

import (
	"context"
	"errors"
	"time"
)

// Change changes the keys of a running cluster step by step. Each step ends when all running servers have taken it, so that no server meets a value that
// it cannot read. What is interrupted at any point goes on with the same call.
type Change struct {
	Store
	Who string // this command, for another one that runs at the same time
	// Running returns the names of the servers that run now, as far as they are known, and how many run at least, whether or not they follow changes.
	Running func(context.Context) (names []string, atLeast int, err error)
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
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if l.Write == "" {
			return errOff
		}
		return c.prepare(ctx, l)
	})
}

// Rotate has all servers write with the new key.
func (c Change) Rotate(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if l.Stage != Prepared && l.Stage != Rotated {
			return errNoSteps
		}
		return c.rotate(ctx)
	})
}

// Reencrypt encrypts all Secrets that are encrypted with another key, or not at all, with the key that is written with.
func (c Change) Reencrypt(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		switch {
		case l.Write == "" && l.Stage != Disabling:
			return errOff
		case l.Stage == Prepared:
			return errors.New("servers do not write with the new key yet: run coracle secrets-encrypt rotate before")
		}
		return c.reencrypt(ctx)
	})
}

// RotateKeys does all the steps of a change of the key: those that remain, if it was begun.
func (c Change) RotateKeys(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if l.Write == "" {
			return errOff
		}
		return c.allSteps(ctx, l)
	})
}

// Enable has all Secrets encrypted in a cluster where they are not.
func (c Change) Enable(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if l.Write != "" && (l.Stage == Start || l.Stage == Finished) {
			c.Tell("Secrets are encrypted already")
			return nil
		}
		if l.Write == "" && c.Passphrase.Given() {
			l.salt = newSalt()
		}
		return c.allSteps(ctx, l)
	})
}

// Seal has the keys sealed with the passphrase, and replaces the one that is written with: without the passphrase it was on disks before.
func (c Change) Seal(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) (err error) {
		if l.Write == "" {
			return errOff
		}
		if !c.Passphrase.Given() {
			return errors.New("there is no passphrase: on each server name a file with the same one, with --secrets-encryption-passphrase-file, and restart it before")
		}
		if l.Stage == Prepared || l.Stage == Rotated {
			if err := c.allSteps(ctx, l); err != nil {
				return err
			}
			if l, err = c.Load(ctx); err != nil {
				return err
			}
		}
		if !l.WithPassphrase() {
			l.salt = newSalt()
			if err := c.allSteps(ctx, l); err != nil {
				return err
			}
		}
		c.Tell("the keys are sealed with the passphrase: keep it, for without it nobody can read the Secrets, nor those in backups")
		return nil
	})
}

// Unseal has the keys sealed with the cluster's CA alone.
func (c Change) Unseal(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if l.salt = nil; l.Exists {
			if err := c.save(ctx, l, l.Keys); err != nil {
				return err
			}
		}
		c.Tell("the keys are sealed with the cluster's CA alone: no passphrase is needed")
		return nil
	})
}

// Disable has all Secrets written as they are.
func (c Change) Disable(ctx context.Context) error {
	return c.locked(ctx, func(ctx context.Context, l Loaded) error {
		if len(l.List) == 0 {
			c.Tell("Secrets are not encrypted")
			return nil
		}
		k := l.Keys
		k.Write, k.Stage = "", Disabling
		if err := c.step(ctx, l, k, "all servers write Secrets as they are"); err != nil {
			return err
		}
		return c.reencrypt(ctx)
	})
}
