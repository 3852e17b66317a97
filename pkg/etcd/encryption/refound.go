package encryption

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Refound gives a copy of a cluster's data keys of its own: it returns those of the former cluster and the new one together, which have to be
// used until all values are rewritten. former is the former cluster's seal. ok is false if nothing is encrypted.
func (s Store) Refound(ctx context.Context, former Seal) (k Keys, ok bool, err error) {
	l, err := s.Load(ctx)
	if errors.Is(err, errSeal) { // not interrupted: nobody has sealed anything for this cluster yet
		own := s.Seals
		s.Seals = []Seal{former}
		if l, err = s.Load(ctx); err != nil {
			return k, false, err
		}
		s.Seals = own
		k = l.Keys
		encrypts := k.Write != ""
		k, _ = k.with(time.Now())
		if k.Stage = Start; encrypts {
			k.Write = k.newest()
		}
		return k, true, s.save(ctx, l, k)
	}
	return l.Keys, l.Exists, err
}

// Forget removes all keys but the one that is written with.
func (s Store) Forget(ctx context.Context) error {
	l, err := s.Load(ctx)
	if err != nil {
		return err
	}
	k := l.Keys
	k.List = slices.DeleteFunc(slices.Clone(k.List), func(one Key) bool { return one.Name != k.Write })
	return s.save(ctx, l, k)
}

// Reseal seals the keys with other seals. It does nothing if there are no keys.
func (s Store) Reseal(ctx context.Context, with []Seal) error {
	l, err := s.Load(ctx)
	if err != nil || !l.Exists {
		return err
	}
	s.Seals = with
	return s.save(ctx, l, l.Keys)
}
