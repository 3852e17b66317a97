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
	"regexp"
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

	file indexFile
	path string
}

// indexFile is the object of an index. The proof is made of the bytes of the index with the key of the pieces, so that versions of coracle may differ in
// what an index has.
type indexFile struct {
	Index json.RawMessage `json:"index"`
	Proof []byte          `json:"proof"`
}

const (
	format     = 1
	suffix     = ".json"
	piecesDir  = "pieces"
	indexLimit = 16 << 20 // a backup of 8 GB has an index of 2 MB
)

// About is for backup.Surplus.
func (x Index) About() backup.Summary { return x.Summary }

// encode returns the object of an index.
func (x Index) encode(key PieceKey) ([]byte, error) {
	text, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	return json.Marshal(indexFile{text, proof(key, text)})
}

func proof(key PieceKey, index []byte) []byte { return sum(key.derive("index"), index) }

// decode reads the object of an index.
func decode(object []byte) (x Index, err error) {
	if err := json.Unmarshal(object, &x.file); err != nil {
		return x, err
	}
	if err := json.Unmarshal(x.file.Index, &x); err != nil {
		return x, err
	}
	if x.Format != format || len(x.Pieces)%idSize != 0 {
		return x, errors.New("a later version of coracle has written it")
	}
	for _, name := range []string{x.Name, x.Node, x.Cluster} { // they become parts of paths, and are shown to people
		if len(name) > 253 || !nameLike.MatchString(name) {
			return x, fmt.Errorf("it has the name %q", name)
		}
	}
	return x, nil
}

var nameLike = regexp.MustCompile(`^[0-9A-Za-z][-.0-9A-Za-z_]*$`)

func (x Index) ids() (all []id) {
	for part := range slices.Chunk(x.Pieces, idSize) {
		all = append(all, id(part))
	}
	return all
}

// dir is the folder of a server in a cluster.
func (b *Bucket) dir(cluster, node string) string {
	return path.Join(b.folder, cluster[:min(len(cluster), clusterLength)], node) + "/"
}

// clusterLength is how much of the hash of a cluster's CA is in paths.
const clusterLength = 12

func (b *Bucket) piece(dir string, i id) string {
	return dir + path.Join(piecesDir, i.String()[:2], i.String())
}

// Location says where a backup is, for people.
func (b *Bucket) Location(x Index) string {
	return "s3://" + path.Join(b.name, strings.TrimSuffix(x.path, suffix))
}

// List returns the backups of one server in the folder, in their order. What cannot be read is an error besides.
func (b *Bucket) List(ctx context.Context, of backup.Series) ([]Index, error) {
	return b.indexes(ctx, []string{b.dir(of.Cluster, of.Node)})
}

// ListAll returns the backups of all servers of all clusters in the folder, as List does.
func (b *Bucket) ListAll(ctx context.Context) ([]Index, error) {
	dirs := []string{""}
	if b.folder != "" {
		dirs = []string{b.folder + "/"}
	}
	for range 2 { // clusters, and their servers
		var below []string
		for _, dir := range dirs {
			err := b.list(ctx, dir, false, func(path string, _ int64) {
				if strings.HasSuffix(path, "/") {
					below = append(below, path)
				}
			})
			if err != nil {
				return nil, err
			}
		}
		dirs = below
	}
	return b.indexes(ctx, dirs)
}

// indexes reads the indexes in some folders.
func (b *Bucket) indexes(ctx context.Context, dirs []string) (found []Index, err error) {
	var paths []string
	for _, dir := range dirs {
		err := b.list(ctx, dir, false, func(path string, size int64) {
			if strings.HasSuffix(path, suffix) && size < indexLimit {
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
			if ctx.Err() != nil {
				break
			}
			continue
		}
		found = append(found, x)
	}
	slices.SortFunc(found, func(x, y Index) int { return x.Compare(y.Summary) })
	return found, unread
}

func (b *Bucket) index(ctx context.Context, path string) (x Index, err error) {
	object, err := b.get(ctx, path, indexLimit)
	if err != nil {
		return x, err
	}
	if x, err = decode(object); err == nil && path != b.dir(x.Cluster, x.Node)+x.Name+suffix {
		err = errors.New("it is another one's")
	}
	if err != nil {
		return x, fmt.Errorf("%s in the bucket %s is no index of a backup: %w", path, b.name, err)
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
	if !hmac.Equal(proof(k, x.file.Index), x.file.Proof) {
		return k, fmt.Errorf("the index of the copy %s in the bucket is not what was written", x.Name)
	}
	return k, nil
}
