package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// mounted reports whether path is a mount point.
func mounted(path string) bool {
	data, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(data), " "+path+" ")
}

// bind makes a bind mount of from at to.
func bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", from, to, err)
	}
	if !readOnly {
		return nil
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// unmountOnly keeps the file or directory under the mount.
func unmountOnly(path string) error {
	for mounted(path) {
		if err := unix.Unmount(path, 0); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return nil
}

// unmount also removes the empty directory or file under the mount.
func unmount(path string) error { return errors.Join(unmountOnly(path), gone(os.Remove(path))) }

// gone returns nil for an error that says that there was nothing to do.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// publishDevice binds a volume's loop device to the target file.
func (v *volumes) publishDevice(req *csi.NodePublishVolumeRequest) error {
	device, err := v.device(req.VolumeId)
	if err == nil && device == "" {
		device, err = attach(v.image(req.VolumeId))
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(req.TargetPath), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(req.TargetPath, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), bind(device, req.TargetPath, false))
}

// device returns the loop device of the volume's file, or "". It is found by the file's inode: drivers of other clusters on this machine have files of the same name.
func (v *volumes) device(id string) (string, error) {
	var image unix.Stat_t
	if err := unix.Stat(v.image(id), &image); err != nil {
		return "", gone(err)
	}
	names, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		path := "/dev/" + filepath.Base(filepath.Dir(name))
		found := false
		err := withDevice(path, func(fd int) error {
			info, err := unix.IoctlLoopGetStatus64(fd)
			found = err == nil && info.Device == image.Dev && info.Inode == image.Ino
			return err
		})
		if found && err == nil {
			return path, nil
		}
	}
	return "", nil
}

// attach attaches a file to a free loop device.
func attach(image string) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for range 5 { // another process may have taken it
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("looking for a free loop device: %w", err)
		}
		path := fmt.Sprint("/dev/loop", number)
		if err := withDevice(path, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(file.Fd())) }); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no loop device is free")
}

// release detaches a volume's loop device.
func (v *volumes) release(id string) error {
	return v.onDevice(id, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
}

// reread makes a volume's loop device read the file's size again.
func (v *volumes) reread(id string) error {
	return v.onDevice(id, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
}

func (v *volumes) onDevice(id string, do func(fd int) error) error {
	device, err := v.device(id)
	if err != nil || device == "" {
		return err
	}
	return withDevice(device, do)
}

func withDevice(path string, do func(fd int) error) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}
