package bucket

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/restic/chunker"
	"golang.org/x/sync/errgroup"

	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// The sizes of pieces in bytes. An idle cluster changes a few of them between two backups: those with the newest entries, and those with what was
// newest the last time.
const (
	smallestPiece = 64 << 10
	largestPiece  = 512 << 10
	averageBits   = 17
)

// atOnce is how many objects are sent or read at a time.
const atOnce = 4

// Sent is what a backup has cost.
type Sent struct {
	Bytes  int64 `json:"bytes"`  // sent, with the index
	Pieces int   `json:"pieces"` // of the backup
	New    int   `json:"new"`    // of them, sent
}

// polynomial returns where pieces are cut, which is a secret too: the sizes of pieces would tell what is in them.
func (k PieceKey) polynomial() (chunker.Pol, error) {
	const enough = 255 * sha256.Size // of random bytes: one of 53 polynomials is irreducible
	random, err := hkdf.Expand(sha256.New, k.derive("cuts"), "", enough)
	if err != nil {
		return 0, err
	}
	return chunker.DerivePolynomial(bytes.NewReader(random))
}

// Put sends the content of a backup, and then its index. The keys are those that encrypt the backup.
func (b *Bucket) Put(ctx context.Context, about backup.Summary, key PieceKey, keys backup.Keys, content io.Reader) (sent Sent, err error) {
	x := Index{Format: format, Summary: about}
	if x.Key, err = keys.Seal(key[:]); err != nil {
		return sent, err
	}
	sealer, err := newSealer(key)
	if err != nil {
		return sent, err
	}
	cuts, err := key.polynomial()
	if err != nil {
		return sent, err
	}
	dir := b.dir(about.Cluster, about.Node)
	there, err := b.pieces(ctx, dir)
	if err != nil {
		return sent, err
	}
	pieces := chunker.NewWithBoundaries(content, cuts, smallestPiece, largestPiece)
	pieces.SetAverageBits(averageBits)
	var size atomic.Int64
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for {
		piece, err := pieces.Next(nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sent, errors.Join(err, group.Wait())
		}
		i := sealer.id(piece.Data)
		x.Pieces = append(x.Pieces, i[:]...)
		sent.Pieces++
		if there[i] {
			continue
		}
		there[i] = true
		sent.New++
		object := sealer.seal(i, piece.Data)
		b.Limit.Wait(len(object))
		group.Go(func() error {
			size.Add(int64(len(object)))
			return b.put(sending, b.piece(dir, i), object)
		})
		if sending.Err() != nil {
			break
		}
	}
	if err := group.Wait(); err != nil {
		return sent, err
	}
	text, err := x.encode(key)
	if err != nil {
		return sent, err
	}
	sent.Bytes = size.Load() + int64(len(text))
	return sent, b.put(ctx, dir+about.Name+suffix, text)
}

// pieces lists the pieces in a server's folder. One that is not whole, as S3 has none, is not among them.
func (b *Bucket) pieces(ctx context.Context, dir string) (map[id]bool, error) {
	found := map[id]bool{}
	err := b.list(ctx, dir+piecesDir+"/", true, func(path string, size int64) {
		if i, ok := parseID(path); ok && size > 0 {
			found[i] = true
		}
	})
	return found, err
}

// Get writes the content of a backup to w.
func (b *Bucket) Get(ctx context.Context, x Index, keys backup.Keys, w io.Writer) error {
	key, err := x.key(keys)
	if err != nil {
		return err
	}
	sealer, err := newSealer(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan chan result, atOnce)
	go func() {
		defer close(next)
		for _, i := range x.ids() {
			r := make(chan result, 1)
			select {
			case next <- r:
			case <-ctx.Done():
				return
			}
			go func() { r <- b.getPiece(ctx, sealer, x, i) }()
		}
	}()
	for r := range next {
		got := <-r
		if got.err != nil {
			return got.err
		}
		if _, err := w.Write(got.piece); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

type result struct {
	piece []byte
	err   error
}

func (b *Bucket) getPiece(ctx context.Context, s *sealer, x Index, i id) result {
	path := b.piece(b.dir(x.Cluster, x.Node), i)
	object, err := b.get(ctx, path, 2*largestPiece)
	if err != nil {
		if minio.ToErrorResponse(err).Code == "NoSuchKey" {
			err = fmt.Errorf("the copy %s lacks a piece: %w", x.Name, err)
		}
		return result{err: err}
	}
	piece, err := s.open(i, object)
	if err != nil {
		err = fmt.Errorf("the copy %s is damaged: %s in the bucket %s: %w", x.Name, path, b.name, err)
	}
	return result{piece, err}
}
