package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// volumes adds storage to the mock's state. Volumes in a directory outlive the process, the mock's state does not.
type volumes struct {
	service.Service
	dir string
	all sync.Mutex
}

func newVolumes(dir string, books service.Service) *volumes {
	return &volumes{Service: books, dir: filepath.Join(dir, "volumes")}
}

// oneAtATime is the server's interceptor, because the mock returns its own maps and changes them.
func (v *volumes) oneAtATime(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	v.all.Lock()
	defer v.all.Unlock()
	resp, err := next(ctx, req)
	if m, ok := resp.(proto.Message); ok && err == nil {
		resp = proto.Clone(m)
	}
	fmt.Fprintln(os.Stderr, info.FullMethod, "error:", err)
	return resp, err
}

// folder is the mount point of a file system volume, files the directory in it that pods get, image the file of a block
// volume. Pods do not get the mount point itself: the kubelet would take it for another user's mount of the volume that
// it unmounts.
func (v *volumes) folder(id string) string { return filepath.Join(v.dir, id) }
func (v *volumes) files(id string) string  { return filepath.Join(v.dir, id, "files") }
func (v *volumes) image(id string) string  { return filepath.Join(v.dir, id+".img") }

// ControllerGetCapabilities omits capabilities of the mock that this driver does not implement.
func (v *volumes) ControllerGetCapabilities(ctx context.Context, req *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp, err := v.Service.ControllerGetCapabilities(ctx, req)
	if err != nil {
		return nil, err
	}
	resp.Capabilities = slices.DeleteFunc(resp.Capabilities, func(c *csi.ControllerServiceCapability) bool {
		switch c.GetRpc().GetType() {
		case csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
			csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES:
			return true
		}
		return false
	})
	return resp, nil
}

// CreateVolume creates a volume with the size that the mock has recorded.
func (v *volumes) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	resp, err := v.Service.CreateVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		if c.GetBlock() != nil {
			if err = v.restoreImage(req, resp.Volume.VolumeId); err == nil {
				err = v.makeImage(resp.Volume.VolumeId, resp.Volume.CapacityBytes)
			}
			return resp, internal(err)
		}
	}
	if err = v.makeFolder(resp.Volume.VolumeId, resp.Volume.CapacityBytes); err == nil {
		err = v.restoreFolder(req, resp.Volume.VolumeId)
	}
	return resp, internal(err)
}

func (v *volumes) makeImage(id string, size int64) error {
	if err := os.MkdirAll(v.dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(v.image(id), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func (v *volumes) makeFolder(id string, size int64) error {
	folder := v.folder(id)
	if mounted(folder) {
		return nil
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	if err := unix.Mount("csi", folder, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		return err
	}
	return os.Mkdir(v.files(id), 0o755)
}

// DeleteVolume removes the storage, then the record.
func (v *volumes) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if id := req.GetVolumeId(); id != "" && filepath.IsLocal(id) {
		if err := errors.Join(unmount(v.folder(id)), gone(os.Remove(v.image(id)))); err != nil {
			return nil, internal(err)
		}
	}
	return v.Service.DeleteVolume(ctx, req)
}

// ControllerExpandVolume expands the storage.
func (v *volumes) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	resp, err := v.Service.ControllerExpandVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(v.image(req.VolumeId)); err == nil {
		return resp, internal(os.Truncate(v.image(req.VolumeId), resp.CapacityBytes))
	}
	size := fmt.Sprintf("size=%d", resp.CapacityBytes)
	return resp, internal(unix.Mount("csi", v.folder(req.VolumeId), "tmpfs", unix.MS_REMOUNT, size))
}

// NodeStageVolume mounts a file system volume once for all pods, where the kubelet wants it.
func (v *volumes) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	resp, err := v.Service.NodeStageVolume(ctx, req)
	if err != nil || req.VolumeCapability.GetBlock() != nil || mounted(req.StagingTargetPath) {
		return resp, err
	}
	return resp, internal(bind(v.files(req.VolumeId), req.StagingTargetPath, false))
}

// NodeUnstageVolume undoes NodeStageVolume.
func (v *volumes) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	resp, err := v.Service.NodeUnstageVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp, internal(unmountOnly(req.StagingTargetPath))
}

// NodePublishVolume mounts a volume for one pod.
func (v *volumes) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if inline(req.GetVolumeId()) {
		return &csi.NodePublishVolumeResponse{}, internal(publishInline(req))
	}
	resp, err := v.Service.NodePublishVolume(ctx, req)
	if err != nil || mounted(req.TargetPath) {
		return resp, err
	}
	switch {
	case req.VolumeCapability.GetBlock() != nil:
		err = v.publishDevice(req)
	default:
		if err = os.MkdirAll(req.TargetPath, 0o750); err == nil {
			err = bind(req.StagingTargetPath, req.TargetPath, req.Readonly)
		}
	}
	return resp, internal(err)
}

// inline reports whether the kubelet made the id, for a volume in a pod's spec. The mock does not support those.
func inline(id string) bool { return strings.HasPrefix(id, "csi-") }

func publishInline(req *csi.NodePublishVolumeRequest) error {
	if mounted(req.TargetPath) {
		return nil
	}
	if err := os.MkdirAll(req.TargetPath, 0o750); err != nil {
		return err
	}
	return unix.Mount("csi", req.TargetPath, "tmpfs", 0, "size=1m,mode=0777")
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (v *volumes) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if inline(req.GetVolumeId()) {
		return &csi.NodeUnpublishVolumeResponse{}, internal(unmount(req.TargetPath))
	}
	resp, err := v.Service.NodeUnpublishVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp, internal(errors.Join(unmount(req.TargetPath), v.release(req.VolumeId)))
}

// NodeExpandVolume makes a loop device read its file's new size.
func (v *volumes) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	resp, err := v.Service.NodeExpandVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp, internal(v.reread(req.VolumeId))
}

// internal converts a storage error to a gRPC error.
func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}

// noIO keeps the mock from writing to the disk: the target is created here, as a directory or as a file.
type noIO struct{ service.OSDirIO }

func (noIO) Mkdir(string) error             { return nil }
func (noIO) RemoveAll(string) error         { return nil }
func (noIO) DirExists(string) (bool, error) { return true, nil }
