package images

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/continuity/sysx"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"
)

// shareLayers makes the unpacked layers of an image in another containerd from hard links. Where that is not possible it unpacks them.
func shareLayers(ctx context.Context, from, to Store, img images.Image, snapshotter string) error {
	chain, err := containerd.NewImage(from.Client, img).RootFS(ctx)
	if err != nil {
		return err
	}
	ours, theirs := from.Client.SnapshotService(snapshotter), to.Client.SnapshotService(snapshotter)
	parent := ""
	for i := range chain {
		id := identity.ChainID(chain[:i+1]).String()
		err := shareLayer(layer{from, ours}, layer{to, theirs}, id, parent)
		if errors.Is(err, errCopy) {
			return unpack(ctx, to.Client, img, snapshotter)
		}
		if err != nil {
			return fmt.Errorf("linking the files of layer %d: %w", i+1, err)
		}
		parent = id
	}
	return refer(ctx, to.Client, img, snapshotter, parent)
}

// refer protects the layers of an image from the garbage collector while the image exists, as Unpack does.
func refer(ctx context.Context, client *containerd.Client, img images.Image, snapshotter, chain string) error {
	config, err := img.Config(ctx, client.ContentStore(), platforms.Default())
	if err != nil {
		return err
	}
	label := "containerd.io/gc.ref.snapshot." + snapshotter
	_, err = client.ContentStore().Update(ctx, content.Info{Digest: config.Digest, Labels: map[string]string{label: chain}}, "labels."+label)
	return err
}

// layer is the store of unpacked layers of a containerd.
type layer struct {
	store Store
	snapshots.Snapshotter
}

// shareLayer makes a layer of one containerd from a layer of another.
func shareLayer(from, to layer, id, parent string) error {
	if _, err := to.Stat(to.store.ctx, id); err == nil {
		return nil
	}
	info, err := from.Stat(from.store.ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", errCopy, err) // it is not unpacked in from
	}
	key := "share-" + rand.Text()
	view, err := from.View(from.store.ctx, key, id)
	if err != nil {
		return err
	}
	defer func() { _ = from.Remove(context.WithoutCancel(from.store.ctx), key) }()
	source := from.store.path(lowest(view))
	fresh, err := to.Prepare(to.store.ctx, key, parent)
	if err != nil {
		return err
	}
	target := to.store.path(upper(fresh))
	if source == "" || target == "" {
		err = fmt.Errorf("%w: the path of its files is unknown", errCopy)
	} else {
		err = linkTree(source, target)
	}
	if err == nil {
		err = to.Commit(to.store.ctx, id, key, snapshots.WithLabels(info.Labels))
	}
	if err != nil && !errdefs.IsAlreadyExists(err) {
		_ = to.Remove(context.WithoutCancel(to.store.ctx), key)
		return err
	}
	return nil
}

// path returns the path for this process of a directory of containerd, "" if it is not in containerd's root.
func (s Store) path(own string) string {
	rest, ok := strings.CutPrefix(own, s.Own+"/")
	if !ok {
		return ""
	}
	return filepath.Join(s.Root, rest)
}

// lowest returns the directory of a view's topmost layer.
func lowest(view []mount.Mount) string {
	if len(view) != 1 {
		return ""
	}
	if dirs := option(view[0], "lowerdir="); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	return view[0].Source
}

// upper returns the directory to which a new layer is written.
func upper(fresh []mount.Mount) string {
	if len(fresh) != 1 {
		return ""
	}
	if dir := option(fresh[0], "upperdir="); dir != "" {
		return dir
	}
	return fresh[0].Source
}

func option(m mount.Mount, name string) string {
	for _, o := range m.Options {
		if value, ok := strings.CutPrefix(o, name); ok {
			return value
		}
	}
	return ""
}

// linkTree makes a tree with new directories and hard links to the files of another tree.
func linkTree(from, to string) error {
	type times struct {
		path string
		at   [2]unix.Timespec
	}
	var dirs []times // times of directories are set last, because new entries change them
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if !d.IsDir() {
			return link(path, target)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errCopy
		}
		dirs = append(dirs, times{target, [2]unix.Timespec{unix.Timespec(stat.Atim), unix.Timespec(stat.Mtim)}})
		return likeDir(path, target, stat)
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, dirs[i].path, dirs[i].at[:], unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return nil
}

// likeDir makes an empty directory with the owner, mode and extended attributes of another.
func likeDir(from, to string, stat *syscall.Stat_t) error {
	if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Lchown(to, int(stat.Uid), int(stat.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(to, stat.Mode&0o7777); err != nil {
		return err
	}
	names, err := sysx.LListxattr(from)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	for _, name := range names {
		value, err := sysx.LGetxattr(from, name)
		if err == nil {
			err = sysx.LSetxattr(to, name, value, 0)
		}
		if err != nil {
			return err
		}
	}
	return err
}
