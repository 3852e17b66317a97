package bucket

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// Index describes a backup in a bucket, and lists its pieces.
type Index struct {
	Format int `json:"format"`
	backup.Summary
	// Key is the key of the pieces, encrypted as the backup is.
	Key []byte `json:"key"`
	// Pieces are their names, one after the other.
	Pieces []byte `json:"pieces"`
	// Proof is made with the key of the pieces of all that stands above.
	Proof []byte `json:"proof,omitempty"`

	path string
}

const (
	format     = 1
	suffix     = ".json"
	piecesDir  = "pieces"
	indexLimit = 256 << 20 // of memory: a backup of 8 GB has an index of 2 MB
)

func (x Index) proof(key PieceKey) []byte {
	x.Proof = nil
	text, _ := json.Marshal(x) // a struct of plain fields
	return sum(key.derive("index"), text)
}

func (x Index) ids() (all []id) {
	for part := range slices.Chunk(x.Pieces, idSize) {
		all = append(all, id(part))
	}
	return all
}

func (b *Bucket) dir(node string) string { return path.Join(b.folder, node) + "/" }

func (b *Bucket) piece(node string, i id) string {
	return b.dir(node) + path.Join(piecesDir, i.String()[:2], i.String())
}

// List returns all backups in the folder, those of one server if node is not "", in the order of their times. What cannot be read is an error besides.
func (b *Bucket) List(ctx context.Context, node string) (found []Index, err error) {
	var paths, dirs []string
	top := ""
	if b.folder != "" {
		top = b.folder + "/"
	}
	if node != "" {
		dirs = []string{b.dir(node)}
	} else if err := b.list(ctx, top, false, func(path string, _ int64) {
		if strings.HasSuffix(path, "/") {
			dirs = append(dirs, path)
		}
	}); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		err := b.list(ctx, dir, false, func(path string, _ int64) {
			if strings.HasSuffix(path, suffix) {
				paths = append(paths, path)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	var unread error
	for _, path := range paths {
		x, err := b.index(ctx, path)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		found = append(found, x)
	}
	slices.SortFunc(found, func(x, y Index) int { return x.Created.Compare(y.Created) })
	return found, unread
}

func (b *Bucket) index(ctx context.Context, path string) (x Index, err error) {
	text, err := b.get(ctx, path, indexLimit)
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return x, fmt.Errorf("%s in the bucket %s is no index of a backup: %w", path, b.name, err)
	}
	if x.Format != format || len(x.Pieces)%idSize != 0 {
		return x, fmt.Errorf("%s in the bucket %s is no index of a backup, or of a later version of coracle", path, b.name)
	}
	x.path = path
	return x, nil
}

func (b *Bucket) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	o, err := b.client.GetObject(ctx, b.name, path, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain("reading "+path, err)
	}
	defer o.Close()
	data, err := io.ReadAll(io.LimitReader(o, limit))
	return data, b.explain("reading "+path, err)
}

func (b *Bucket) put(ctx context.Context, path string, data []byte) error {
	ctx, cancel := b.request(ctx)
	defer cancel()
	_, err := b.client.PutObject(ctx, b.name, path, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{DisableMultipart: true})
	return b.explain("writing "+path, err)
}

// key opens the key of a backup's pieces, and checks the index with it.
func (x Index) key(keys backup.Keys) (k PieceKey, err error) {
	text, err := keys.Open(x.Key)
	if err != nil {
		return k, fmt.Errorf("the copy %s in the bucket: %w", x.Name, err)
	}
	if len(text) != len(k) {
		return k, fmt.Errorf("the copy %s in the bucket has a key of %d bytes", x.Name, len(text))
	}
	k = PieceKey(text)
	if !hmac.Equal(x.proof(k), x.Proof) {
		return k, fmt.Errorf("the index of the copy %s in the bucket is not what was written", x.Name)
	}
	return k, nil
}
