package bucket

import (
	"context"
	"encoding/hex"
	"path"

	"github.com/minio/minio-go/v7"

	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// Delete removes backups of one server, and then the pieces that no other backup of that server has. After a crash the next call removes what was left.
func (b *Bucket) Delete(ctx context.Context, of backup.Series, gone []Index) error {
	for _, x := range gone {
		if err := b.remove(ctx, x.path); err != nil {
			return err
		}
	}
	left, err := b.List(ctx, of)
	if err != nil {
		return err // the pieces of a backup that cannot be read are not known
	}
	used := map[id]bool{}
	for _, x := range left {
		for _, i := range x.ids() {
			used[i] = true
		}
	}
	var unused []string
	err = b.list(ctx, b.dir(of.Cluster, of.Node)+piecesDir+"/", true, func(path string, _ int64) {
		if i, ok := parseID(path); ok && !used[i] {
			unused = append(unused, path)
		}
	})
	for _, path := range unused {
		if err == nil {
			err = b.remove(ctx, path)
		}
	}
	return err
}

func (b *Bucket) remove(ctx context.Context, path string) error {
	ctx, cancel := b.request(ctx)
	defer cancel()
	return b.explain("removing "+path, b.client.RemoveObject(ctx, b.name, path, minio.RemoveObjectOptions{}))
}

func parseID(object string) (i id, ok bool) {
	raw, err := hex.DecodeString(path.Base(object))
	if err != nil || len(raw) != idSize {
		return i, false
	}
	return id(raw), true
}
