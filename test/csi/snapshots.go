package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// A snapshot is a copy of a volume's files, or of its image, beside the volumes.
func (v *volumes) copyOf(snapshot string) string {
	return filepath.Join(filepath.Dir(v.dir), "snapshots", snapshot)
}

// CreateSnapshot copies the volume after the mock has recorded the snapshot. A snapshot that exists is not copied again.
func (v *volumes) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	resp, err := v.Service.CreateSnapshot(ctx, req)
	if err != nil {
		return nil, err
	}
	source := v.files(req.SourceVolumeId)
	if _, err := os.Stat(v.image(req.SourceVolumeId)); err == nil {
		source = v.image(req.SourceVolumeId)
	}
	return resp, internal(replica(source, v.copyOf(resp.Snapshot.SnapshotId)))
}

// DeleteSnapshot removes the copy, then the record.
func (v *volumes) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if id := req.GetSnapshotId(); id != "" && filepath.IsLocal(id) {
		if err := os.RemoveAll(v.copyOf(id)); err != nil {
			return nil, internal(err)
		}
	}
	return v.Service.DeleteSnapshot(ctx, req)
}

// restoreFolder fills a new volume with the files of the snapshot that it is made from, if it is.
func (v *volumes) restoreFolder(req *csi.CreateVolumeRequest, id string) error {
	snapshot := req.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	if snapshot == "" {
		return nil
	}
	return duplicate(v.copyOf(snapshot), v.files(id))
}

// restoreImage does so for a block volume.
func (v *volumes) restoreImage(req *csi.CreateVolumeRequest, id string) error {
	snapshot := req.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	if snapshot == "" {
		return nil
	}
	return replica(v.copyOf(snapshot), v.image(id))
}

// replica copies a file or a directory to a new name, unless it is there. It appears when it is complete.
func replica(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := duplicate(from, part); err != nil {
		return err
	}
	return os.Rename(part, to)
}

// duplicate copies files, directories and symbolic links with their owners and modes.
func duplicate(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch info.Mode().Type() {
		case fs.ModeDir:
			err = os.MkdirAll(target, 0o700)
		case fs.ModeSymlink:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		case 0:
			err = copyFile(path, target)
		default:
			return fmt.Errorf("%s is no file that can be copied", path)
		}
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		if err := os.Lchown(target, int(owner.Uid), int(owner.Gid)); err != nil || info.Mode().Type() == fs.ModeSymlink {
			return err
		}
		return os.Chmod(target, info.Mode())
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
