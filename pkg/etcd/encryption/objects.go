package encryption

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/storage/value"
)

// page is how many Secrets are read at a time; each can have a megabyte.
const page = 50

// writesPerSecond is how many Secrets are encrypted anew, one after the other: other requests are to be hardly slower meanwhile.
const writesPerSecond = 250

// each calls do for a page of Secrets at a time.
func (s Store) each(ctx context.Context, do func(*clientv3.GetResponse) error) error {
	from := s.Prefix + "/" + resource + "/"
	end := clientv3.GetPrefixRangeEnd(from)
	for {
		got, err := s.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return fmt.Errorf("reading Secrets: %w", err)
		}
		if err := do(got); err != nil {
			return err
		}
		if !got.More || len(got.Kvs) == 0 {
			return nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Count returns how many Secrets are encrypted with which key, by its name. Those that are not encrypted have the name "".
func (s Store) Count(ctx context.Context) (map[string]int, error) {
	all := map[string]int{}
	err := s.each(ctx, func(got *clientv3.GetResponse) error {
		for _, kv := range got.Kvs {
			all[keyOf(kv.Value)]++
		}
		return nil
	})
	return all, err
}

// rewrite encrypts all Secrets that are not encrypted with the key that is written with, and returns how many. tell is called from time to time with how
// many were looked at. It works on etcd's values: the content of a Secret stays as it is, and no webhook can refuse it.
func (s Store) rewrite(ctx context.Context, k Keys, tell func(done int)) (changed int64, err error) {
	t, err := k.Transformer()
	if err != nil {
		return 0, err
	}
	done, limit := 0, rate.NewLimiter(writesPerSecond, 1)
	err = s.each(ctx, func(got *clientv3.GetResponse) error {
		for _, kv := range got.Kvs {
			written, err := s.rewriteOne(ctx, t, kv, limit)
			if err != nil {
				return fmt.Errorf("encrypting %s anew: %w", kv.Key, err)
			}
			if written {
				changed++
			}
		}
		done += len(got.Kvs)
		tell(done)
		return nil
	})
	return changed, err
}

// rewriteOne encrypts a Secret, and reports whether it had to be. It does so again if somebody writes it at the same time: a server that has been slow may have
// used the former key.
func (s Store) rewriteOne(ctx context.Context, t value.Transformer, kv *mvccpb.KeyValue, limit *rate.Limiter) (written bool, err error) {
	key := string(kv.Key)
	about := value.DefaultContext(key)
	for {
		plain, stale, err := t.TransformFromStorage(ctx, kv.Value, about)
		if err != nil || !stale {
			return false, err
		}
		next, err := t.TransformToStorage(ctx, plain, about)
		if err != nil {
			return false, err
		}
		if err := limit.Wait(ctx); err != nil {
			return false, err
		}
		done, present, err := s.putIf(ctx, key, string(next), kv.ModRevision, clientv3.WithLease(clientv3.LeaseID(kv.Lease)))
		if err != nil || done || present == nil { // it was deleted
			return done, err
		}
		kv = present
	}
}

var errNotRewritten = errors.New("Secrets are still encrypted with a former key, which would be lost: run coracle secrets-encrypt reencrypt first")
