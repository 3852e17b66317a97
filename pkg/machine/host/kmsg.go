package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// ensureKmsg puts an empty pipe in the place of a kernel log that is missing or may not be read, as in a container. The
// kubelet reads the log for processes that the kernel killed for lack of memory, and does not start without it. The pipe's
// writing end stays open while this process lives, so that a reader waits. run is coracle's run directory.
func ensureKmsg(l *ledger.Ledger, run string) error {
	f, err := os.OpenFile(footprint.Kmsg, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		info, err := f.Stat()
		f.Close()
		if err == nil && info.Mode()&fs.ModeNamedPipe != 0 { // an earlier start made it
			return holdOpen(footprint.Kmsg)
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := l.Note(ledger.Entry{Kind: ledger.File, Name: footprint.Kmsg}); err != nil {
			return err
		}
		return makePipe(footprint.Kmsg)
	}
	pipe := filepath.Join(run, "kmsg")
	if err := makePipe(pipe); err != nil {
		return err
	}
	if err := l.Note(ledger.Entry{Kind: ledger.Mount, Name: footprint.Kmsg}); err != nil {
		return err
	}
	if err := unix.Mount(pipe, footprint.Kmsg, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting a stand-in on %s, which may not be read: %w", footprint.Kmsg, err)
	}
	return nil
}

func makePipe(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s, a stand-in for the kernel's log: %w", path, err)
	}
	return holdOpen(path)
}

// holdOpen opens a pipe until this process ends: the descriptor is never closed.
func holdOpen(path string) error {
	if _, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("opening %s, a stand-in for the kernel's log: %w", path, err)
	}
	return nil
}
