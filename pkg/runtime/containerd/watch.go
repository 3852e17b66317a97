package containerd

import (
	"context"
	"time"

	"github.com/containerd/log"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// checkInterval is the time between two looks at registries.yaml. Pulls read the file themselves; these looks make the log and the
// status name a mistake before the next pull.
const checkInterval = 5 * time.Second

// watch reports changes of registries.yaml until ctx is done.
func (p *puller) watch(ctx context.Context) {
	last, _ := p.state()
	for lifecycle.Sleep(ctx, checkInterval) == nil {
		if file, err := p.state(); err == nil && file != last {
			last = file
			log.L.Info("registries.yaml has changed: the next pull uses its new content")
		}
	}
}
