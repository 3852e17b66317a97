package member

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"runtime/debug"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
)

// digest is what the keys and values are at a revision. It stays the same for as long as that revision is not compacted: compaction removes what
// had been replaced or deleted by then, and nothing else.
type digest struct {
	revision int64
	keys     int
	sum      uint64 // of the checksums of their last values
}

// errChanged is the error of a value that is not what was written.
var errChanged = errors.New("a key or value in etcd's database has changed since it was written: the disk or the memory has changed it")

// digests reads the whole database once, and returns the digests of the present revision and of a former one, nil where that is 0,
// compacted or yet to come. It fails with errAgain if another member's database has just replaced this one.
func (l life) digests(ctx context.Context, former int64) (now digest, then *digest, err error) {
	server := l.server.Server
	now.revision = server.KV().Rev()
	database := server.Backend()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the database is mapped
	defer func() {
		switch p := recover(); { // bbolt and etcd panic at impossible pages and keys, and at a database that is closed
		case p == nil:
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case server.Backend() != database:
			err = fmt.Errorf("%w: %v", errAgain, p)
		default:
			err = fmt.Errorf("%w: %v", errChanged, p)
		}
	}()
	database.ForceCommit() // all that is older than now.revision can be read in its order
	tx := database.ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	first := server.KV().FirstRev()
	scan := newScanner()
	latest, past := map[[2]uint64]uint32{}, map[[2]uint64]uint32{}
	last := revisionKey(0)
	for from, width := int64(0), int64(page); from <= now.revision; {
		to := from + min(width, now.revision+1-from)
		// No limit, because UnsafeRange counts what is in the buffer of writes first, and after a commit that buffer may still be seen
		// (backend.ConcurrentReadTx takes a former copy if there was no write since): with one, it leaves out what is in between.
		keys, values := tx.UnsafeRange(schema.Key, revisionKey(from), revisionKey(to), 0)
		for i := range keys {
			if bytes.Compare(keys[i], last) <= 0 {
				continue // it is in the database and in the buffer
			}
			last = keys[i]
			if err := scan.add(keys[i], values[i], latest); err != nil {
				return now, nil, err
			}
			if mvcc.BytesToRev(last).Main <= former {
				_ = scan.add(keys[i], values[i], past)
			}
		}
		if from = to; len(keys) < page/2 { // compacted revisions leave gaps
			width *= 2
		} else if len(keys) > page {
			width = max(width/2, 1)
		}
		if ctx.Err() != nil {
			return now, nil, context.Cause(ctx)
		}
	}
	if end := mvcc.BytesToRev(last).Main; end != now.revision || first > now.revision {
		return now, nil, fmt.Errorf("%w: revision %d of %d, compacted to %d", errAgain, end, now.revision, first)
	}
	now.keys, now.sum = total(latest)
	if former >= max(first, 1) && former <= now.revision {
		then = &digest{revision: former}
		then.keys, then.sum = total(past)
	}
	return now, then, nil
}

// errAgain is the error of a note that cannot be taken at this moment.
var errAgain = errors.New("the database was replaced meanwhile")

// page is about how many revisions are read at a time.
const page = 1000

// revisionKey is where a revision begins in the database.
func revisionKey(revision int64) []byte {
	return mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
}

// scanner reads keys in the order of their revisions.
type scanner struct{ seeds [2]maphash.Seed }

func newScanner() scanner { return scanner{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}} }

// add notes the checksum of a revision of a key as that of its last one.
func (s scanner) add(revision, value []byte, last map[[2]uint64]uint32) error {
	key, err := keyOf(value)
	if err != nil {
		return fmt.Errorf("%w: revision %d has no key: %w", errChanged, binary.BigEndian.Uint64(revision), err)
	}
	id := [2]uint64{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key)}
	if mvcc.IsTombstone(revision) {
		delete(last, id)
		return nil
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	last[id] = crc32.Update(crc32.Checksum(revision, table), table, value)
	return nil
}

func total(last map[[2]uint64]uint32) (keys int, sum uint64) {
	for _, s := range last {
		sum += uint64(s)
	}
	return len(last), sum
}

// keyOf returns the key of an encoded KeyValue, which is its first field, without decoding the rest. What a restore adds to raise the revision has
// no key and no value.
func keyOf(value []byte) ([]byte, error) {
	for len(value) > 0 {
		number, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		value = value[n:]
		if number == 1 && kind == protowire.BytesType {
			key, n := protowire.ConsumeBytes(value)
			return key, protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(number, kind, value); n < 0 {
			return nil, protowire.ParseError(n)
		}
		value = value[n:]
	}
	return nil, nil
}

func (d digest) String() string { return fmt.Sprintf("%d %d %d", d.revision, d.keys, d.sum) }
