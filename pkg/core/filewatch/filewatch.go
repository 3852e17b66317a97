// Package filewatch notices changes of files by looking at them at intervals. Unlike inotify, it also notices a file system
// that is mounted over a directory, a directory that another one replaces, a changed target of a link, and changes on a
// network file system.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

const (
	// Interval is the time between two looks.
	Interval = time.Second
	// Settle is how long files must not change before a change is announced, because copying programs write in pieces.
	Settle = 100 * time.Millisecond
	// share of the time that looks take at most is 1/share, as long as that does not make the pause between two looks exceed longest.
	share   = 100
	longest = 15 * time.Second
)

// Changes sends after the result of look changes, as soon as it has been the same for Settle, until ctx is done. The result
// is compared with that of a first call, which Changes makes before it returns.
func Changes(ctx context.Context, look func() string) <-chan struct{} {
	changes, announced := make(chan struct{}, 1), look()
	go func() {
		last, took, before := announced, time.Duration(0), time.Duration(0)
		// Of two looks the shorter one counts: one that a busy machine delays must not make changes unnoticed for a hundred times as long.
		for pause := Interval; lifecycle.Sleep(ctx, max(pause, min(share*min(took, before), longest))) == nil; {
			began := time.Now()
			now := look()
			before, took, pause = took, time.Since(began), Interval
			switch {
			case now != last:
				pause = Settle
			case now != announced:
				announced = now
				select {
				case changes <- struct{}{}:
				default: // an earlier change is not handled yet
				}
			}
			last = now
		}
	}()
	return changes
}

// State describes a file, or what its link leads to: the result differs after each change of its content, and if another file
// takes its place. It also differs between missing and unreadable files.
func State(path string) string {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		if target, err := os.Readlink(path); err == nil {
			return "leads to " + target
		}
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim)
}
