package front

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// percent is the progress of something. It is safe for concurrent use.
type percent struct{ value atomic.Int64 }

func (p *percent) set(done, total int64) { p.value.Store(done * 100 / max(total, 1)) }

// String is empty until something is done.
func (p *percent) String() string {
	if n := p.value.Load(); n > 0 {
		return fmt.Sprintf("%d %%", n)
	}
	return ""
}

// unpack unpacks the payload to where the child processes run from, unless it is there.
func (f *front) unpack(ctx context.Context) error {
	var once sync.Once
	unpack, to := payload.Unpack, f.asked.Dirs.Payloads()
	if f.asked.Ephemeral.On {
		unpack, to = payload.Borrow, payload.Cache()
	}
	return unpack(ctx, f.asked.Dirs, func(done, total int64) {
		once.Do(func() { logrus.Infof("unpacking to %s", to) })
		f.unpacked.set(done, total)
	})
}

// prefetch unpacks the payload while joining waits for a server. If it fails, the step that needs the payload reports why.
func (f *front) prefetch(ctx context.Context) {
	if err := f.unpack(ctx); err != nil {
		logrus.WithError(err).Debug("unpacking while waiting to join")
	}
}
