package announcer

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// health is whether a server of this machine works. The zero value says that it does not.
type health struct {
	mu   sync.Mutex
	last time.Time // when it was asked last and was ready; zero after a failure
}

// Timing of the checks.
const (
	healthInterval = 500 * time.Millisecond
	healthTimeout  = 1500 * time.Millisecond
)

// good reports whether it works.
func (h *health) good(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.last) < healthInterval+healthTimeout
}

// follow asks this machine's API server until ctx is done.
func (h *health) follow(ctx context.Context, a Announcer) {
	var client *http.Client
	h.repeat(ctx, false, func(ctx context.Context) bool {
		if client == nil {
			client, _ = a.client() // its files may come later; the node does not count as healthy until then
		}
		if client == nil {
			return false
		}
		ready := isReady(ctx, client, a.OwnDial)
		if !ready {
			client.CloseIdleConnections()
			client = nil // with new certificates, and a new connection
		}
		return ready
	})
	if client != nil {
		client.CloseIdleConnections()
	}
}

// repeat checks until ctx is done. A patient one forgives failures for as long as healthInterval and healthTimeout: the server may be back before another
// node has taken over.
func (h *health) repeat(ctx context.Context, patient bool, check func(context.Context) bool) {
	for ctx.Err() == nil {
		h.check(ctx, patient, check)
		_ = lifecycle.Sleep(ctx, healthInterval)
	}
}

func (h *health) check(ctx context.Context, patient bool, check func(context.Context) bool) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	began := time.Now()
	works := check(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case works:
		h.last = began
	case !patient:
		h.last = time.Time{}
	}
}

func isReady(ctx context.Context, client *http.Client, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	return err == nil && response.StatusCode == http.StatusOK
}
