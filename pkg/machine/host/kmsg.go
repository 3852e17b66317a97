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

// standInKmsg makes up for a kernel log that is missing, or may not be read, as in a container: a pipe on which nothing
// ever comes. Its writing end stays open for as long as this process lives, so that reading it waits. run is a
// directory of ours.
func standInKmsg(l *ledger.Ledger, run string) error {
	f, err := os.OpenFile(footprint.Kmsg, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		info, err := f.Stat()
		f.Close()
		if err == nil && info.Mode()&fs.ModeNamedPipe != 0 { // ours, of an earlier start
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

// holdOpen opens a pipe for this process' whole life; the descriptor is given away on purpose.
func holdOpen(path string) error {
	if _, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("opening %s, a stand-in for the kernel's log: %w", path, err)
	}
	return nil
}
