package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// resumeSafely makes containerd's content store continue only what the disk has. It continues a download or an import where the last one ended;
// if that had ended because the disk was full or had failed, the kernel shows what should have been written, the new one finds nothing to
// flush, and the content, of the right digest, has holes from the next power cut on. root is the store's directory.
func resumeSafely(instance any, root string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if _, again := instance.(resumedStore); again { // another start in the same process
		return instance, nil
	}
	s, ok := instance.(content.Store)
	if !ok {
		return nil, fmt.Errorf("containerd's content store is a %T", instance)
	}
	return resumedStore{s, root}, nil
}

type resumedStore struct {
	content.Store
	root string
}

// Writer implements content.Ingester.
func (s resumedStore) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	var o content.WriterOpts
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	part := filepath.Join(s.root, "ingest", digest.FromString(o.Ref).Encoded(), "data") // as in plugins/content/local
	if err := atomicfile.Reread(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.drop(ctx, o.Ref, err)
	}
	w, err := s.Store.Writer(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return resumedWriter{w, s, o.Ref}, nil
}

// drop removes what there is of a content that is being written.
func (s resumedStore) drop(ctx context.Context, ref string, why error) {
	err := s.Abort(context.WithoutCancel(ctx), ref)
	if err != nil && !errdefs.IsNotFound(err) {
		log.G(ctx).WithError(err).Warnf("removing a part of %s", ref)
		return
	}
	log.G(ctx).WithError(why).Infof("%s is not continued: the next try begins anew", ref)
}

type resumedWriter struct {
	content.Writer
	store resumedStore
	ref   string
}

// Commit implements content.Writer. Content that is not what it should be would be continued, and refused, again and again.
func (w resumedWriter) Commit(ctx context.Context, size int64, expected digest.Digest, opts ...content.Opt) error {
	err := w.Writer.Commit(ctx, size, expected, opts...)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		w.store.drop(ctx, w.ref, err)
	}
	return err
}

// Sync implements content.Syncer, which containerd calls before it locks its database for Commit: on a slow disk, all that the node creates would wait
// for the flush of a large layer.
func (w resumedWriter) Sync() error {
	if s, ok := w.Writer.(content.Syncer); ok {
		return s.Sync()
	}
	return nil
}
