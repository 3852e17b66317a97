package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Images are mended in place: an import skips content that containerd knows, whatever its files hold, and containerd does not
// remove layers that containers use, not even those of containers that a power cut ended.

// MendBlobs compares containerd's blobs with those of an archive in OCI layout, which must be small, and replaces the files that differ.
// It reports whether there were any; then the archive has to be imported again, because containerd could not read its images.
func MendBlobs(ctx context.Context, s Store, archive string) (mended bool, err error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	if _, err := os.Stat(filepath.Join(s.Root, contentDir)); err != nil {
		return false, nil // the user has given containerd another directory
	}
	file, err := os.Open(archive)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return mendTree(file, func(name string) string {
		dir, base := path.Split(name)
		sum := digest.NewDigestFromEncoded(digest.SHA256, base)
		if dir != "blobs/sha256/" {
			return ""
		}
		if _, err := s.Client.ContentStore().Info(ctx, sum); err != nil {
			return "" // the import brings it
		}
		return s.blob(sum)
	}, func(name string, data []byte) error {
		if sum := digest.FromBytes(data).Encoded(); sum != path.Base(name) {
			return fmt.Errorf("%s of %s is damaged itself", name, archive)
		}
		return nil
	})
}

// DropDamaged removes images whose index, manifest or configuration is not what its digest says: they start no container, and are pulled or
// imported again. It returns a sentence for each.
func DropDamaged(ctx context.Context, s Store) (dropped []string, err error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	all, err := s.Client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[digest.Digest]error{}
	check := images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if desc.Size > largestDescription || images.IsLayerType(desc.MediaType) {
			return nil, nil
		}
		damage, seen := known[desc.Digest]
		if !seen {
			damage = s.checkBlob(desc.Digest)
			known[desc.Digest] = damage
		}
		if damage != nil {
			return nil, damage
		}
		return images.Children(ctx, s.Client.ContentStore(), desc)
	})
	for _, img := range all {
		bad := images.Walk(ctx, present(check), img.Target) // an index names more than was pulled
		var damaged damagedBlob
		if !errors.As(bad, &damaged) {
			err = errors.Join(err, bad)
			continue
		}
		sum := digest.Digest(damaged)
		gone := errors.Join(withoutNotFound(s.Client.ImageService().Delete(ctx, img.Name)),
			withoutNotFound(s.Client.ContentStore().Delete(ctx, sum)), withoutNotFound(os.Remove(s.blob(sum))))
		if gone != nil {
			err = errors.Join(err, fmt.Errorf("removing image %s: %w", img.Name, gone))
			continue
		}
		dropped = append(dropped, fmt.Sprintf("image %s is removed, to be pulled or imported again: %v", img.Name, damaged))
	}
	return dropped, err
}

// largestDescription is larger than any index, manifest or configuration, in bytes; containerd reads them into memory.
const largestDescription = 8 << 20

// damagedBlob is the error of a blob that is not what its digest says.
type damagedBlob digest.Digest

func (d damagedBlob) Error() string { return fmt.Sprintf("its content %s is damaged", string(d)) }

// checkBlob returns a damagedBlob if containerd's file is not what its digest says. A missing one is left to containerd.
func (s Store) checkBlob(sum digest.Digest) error {
	data, err := os.ReadFile(s.blob(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && sum.Algorithm().FromBytes(data) != sum {
		return damagedBlob(sum)
	}
	return err
}

// withoutNotFound is nil for the error of something that is not there.
func withoutNotFound(err error) error {
	if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MendLayers compares the files of the unpacked layers with the blobs of the images, and replaces those that differ.
func MendLayers(ctx context.Context, s Store, all []Image, snapshotter string) (mended bool, err error) {
	s.ctx = namespaces.WithNamespace(ctx, Namespace)
	for _, name := range all {
		img, err := s.Client.ImageService().Get(s.ctx, name.Name)
		if err != nil {
			return mended, err
		}
		did, err := s.mendImage(img, snapshotter)
		if mended = mended || did; err != nil {
			return mended, fmt.Errorf("the layers of %s: %w", name.Name, err)
		}
	}
	return mended, nil
}

func (s Store) mendImage(img images.Image, snapshotter string) (mended bool, err error) {
	manifest, err := images.Manifest(s.ctx, s.Client.ContentStore(), img.Target, platforms.Default())
	if err != nil {
		return false, err
	}
	chain, err := containerd.NewImage(s.Client, img).RootFS(s.ctx)
	if err != nil {
		return false, err
	}
	for i, blob := range manifest.Layers {
		dir, err := s.unpacked(identity.ChainID(chain[:i+1]).String(), snapshotter)
		if err != nil || dir == "" {
			return mended, err
		}
		file, err := os.Open(s.blob(blob.Digest))
		if err != nil {
			return mended, err
		}
		defer file.Close()
		did, err := mendTree(file, func(name string) string { return filepath.Join(dir, filepath.Clean("/"+name)) }, nil)
		if mended = mended || did; err != nil {
			return mended, err
		}
	}
	return mended, nil
}

// unpacked returns the directory with the files of a layer, "" if it is not known.
func (s Store) unpacked(id, snapshotter string) (string, error) {
	layers, key := s.Client.SnapshotService(snapshotter), "mend-"+rand.Text()
	view, err := layers.View(s.ctx, key, id)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	err = layers.Remove(context.WithoutCancel(s.ctx), key)
	if err != nil && !errdefs.IsNotFound(err) { // the garbage collector may have removed it
		return "", err
	}
	return s.path(lowest(view)), nil
}

// mendTree compares the regular files of an archive with the files at the paths that place returns, "" for those to skip, and replaces
// those that differ if check, which may be nil, returns no error.
func mendTree(archive io.Reader, place func(name string) string, check func(name string, data []byte) error) (mended bool, err error) {
	stream, err := compression.DecompressStream(archive)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	for files := tar.NewReader(stream); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return mended, nil
		}
		if err != nil {
			return mended, err
		}
		target := ""
		if h.Typeflag == tar.TypeReg {
			target = place(h.Name)
		}
		if target == "" {
			continue
		}
		want, err := io.ReadAll(files)
		if err != nil {
			return mended, err
		}
		have, err := os.ReadFile(target)
		if err == nil && bytes.Equal(have, want) {
			continue
		}
		if check != nil {
			if err := check(h.Name, want); err != nil {
				return mended, err
			}
		}
		if err := atomicfile.Write(target, want, h.FileInfo().Mode().Perm()); err != nil {
			return mended, err
		}
		mended = true
	}
}
