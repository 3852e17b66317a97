package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// errNamespaces is part of the error of inNamespaces if the kernel refuses new namespaces.
var errNamespaces = errors.New("making namespaces")

// inNamespaces runs do on a thread in new namespaces, which end with the thread. Other threads do not see what do makes
// there.
func inNamespaces(namespaces int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and /proc/PID describes the process by this thread.
			result <- inNamespaces(namespaces, do) // on another thread
			runtime.UnlockOSThread()
			return
		}
		// The thread is not unlocked from here on, so that it ends with this function.
		if err := unix.Unshare(namespaces); err != nil {
			result <- fmt.Errorf("%w: %w", errNamespaces, err)
			return
		}
		result <- do()
	}()
	return <-result
}

// noNamespaces returns the verdict on an error of inNamespaces; nil if the error is not about namespaces.
func noNamespaces(err error) []Verdict {
	if !errors.Is(err, errNamespaces) {
		return nil
	}
	return Failf("the kernel must have them, and in a container it takes --privileged", "%v", err)
}

// withoutNamespaces returns the verdict of a probe that needs namespaces and cannot make them; nil if err is another error.
// Except at a start it skips the probe, because the probe "namespaces" fails.
func (m *Machine) withoutNamespaces(err error) []Verdict {
	v := noNamespaces(err)
	if v != nil && !m.starting {
		return Skipf("nothing can be tried without namespaces, see check namespaces")
	}
	return v
}

// overlayfs makes all namespaces that pods have, and mounts an overlay in the data directory as containerd does.
func overlayfs(_ context.Context, m *Machine) []Verdict {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	dir := nearest(m.Config.Dirs.Data)
	err := inNamespaces(all, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("trying out mounts: %w", err)
		}
		return mountOverlay(dir)
	})
	if v := m.withoutNamespaces(err); v != nil {
		return v
	}
	return judgeOverlay(dir, err)
}

// mountOverlay mounts an overlay of new directories in dir, and removes everything afterwards.
func mountOverlay(data string) error {
	dir, err := os.MkdirTemp(data, ".check-*")
	if err != nil {
		return nil // the probe "data-dir" reports it
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			return nil
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", at("lower"), at("upper"), at("work"))
	err = unix.Mount("overlay", at("merged"), "overlay", 0, options+",volatile") // otherwise the unmount syncs the whole disk
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIO) {                 // before Linux 5.10, or the disk had an error that no syncfs has seen yet
		err = unix.Mount("overlay", at("merged"), "overlay", 0, options)
	}
	if err != nil {
		return err
	}
	return unix.Unmount(at("merged"), unix.MNT_DETACH)
}

// judgeOverlay judges the error of mountOverlay.
func judgeOverlay(dir string, err error) []Verdict {
	const slow = "so image layers are copied, which is slow and takes space"
	switch {
	case err == nil:
		return Okf("overlays can be mounted in %s", dir)
	case errors.Is(err, unix.ENODEV):
		return Warnf("load or build in the module overlay", "the kernel has no overlayfs, %s", slow)
	case errors.Is(err, unix.EINVAL):
		return Warnf(fmt.Sprintf("in a container, mount a volume there (docker run -v coracle:%s)", dir),
			"overlayfs does not work on the file system of %s, %s", dir, slow)
	}
	return Failf("", "mounting an overlay in %s: %v", dir, err)
}
