package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// percent is how much of something is done. It is safe for use by several goroutines.
type percent struct{ value atomic.Int64 }

func (p *percent) set(done, total int64) { p.value.Store(done * 100 / max(total, 1)) }

// String is empty before the begin.
func (p *percent) String() string {
	if n := p.value.Load(); n > 0 {
		return fmt.Sprintf("%d %%", n)
	}
	return ""
}

// unpack makes sure that the parts are where the halves run from.
func (f *front) unpack(ctx context.Context) error {
	var said once
	unpack, to := payload.Unpack, f.asked.Dirs.Payloads()
	if f.asked.Ephemeral.On {
		unpack, to = payload.Borrow, payload.Cache()
	}
	return unpack(ctx, f.asked.Dirs, func(done, total int64) {
		said.do(func() { logrus.Infof("unpacking to %s", to) })
		f.unpacked.set(done, total)
	})
}

// unpackAhead uses the time that joining waits for a server. Unpack finds the work done, or tells what is wrong.
func (f *front) unpackAhead(ctx context.Context) {
	if err := f.unpack(ctx); err != nil {
		logrus.WithError(err).Debug("unpacking while waiting to join")
	}
}

// execCore becomes coracle-core, which does the command that args begin with.
func execCore(args []string) error {
	var w where
	w.data, w.run = os.Getenv("CORACLE_DATA_DIR"), os.Getenv("CORACLE_RUN_DIR")
	dirs := w.dirs()
	if cfg, ok, err := w.config(); ok && err == nil {
		dirs = cfg.Dirs // the running one's parts are unpacked already
	}
	var said once
	dir, err := payload.Locate(context.Background(), dirs, func(int64, int64) {
		said.do(func() {
			if isTerminal(os.Stderr) {
				fmt.Fprintln(os.Stderr, "coracle: unpacking, once for this version")
			}
		})
	})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "coracle-core")
	if err := syscall.Exec(path, append([]string{"coracle"}, args...), os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}
	return nil
}
