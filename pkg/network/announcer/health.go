package announcer

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// health is whether the API server of this machine works. The zero value says that it does not.
type health struct {
	mu   sync.Mutex
	last time.Time // when it said last that it is ready; zero after a failure
}

// Timing of the checks.
const (
	healthInterval = 500 * time.Millisecond
	healthTimeout  = 1500 * time.Millisecond
)

// good reports whether the API server is ready.
func (h *health) good(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.last) < healthInterval+healthTimeout
}

// follow asks this machine's API server until ctx is done.
func (h *health) follow(ctx context.Context, a Announcer) {
	var client *http.Client
	for ctx.Err() == nil {
		if client == nil {
			client, _ = a.client() // its files may come later; the node does not count as healthy until then
		}
		var last time.Time
		if began := time.Now(); client != nil && isReady(ctx, client, a.OwnDial) {
			last = began
		} else if client != nil {
			client.CloseIdleConnections()
			client = nil // with new certificates, and a new connection
		}
		h.mu.Lock()
		h.last = last
		h.mu.Unlock()
		_ = lifecycle.Sleep(ctx, healthInterval)
	}
	if client != nil {
		client.CloseIdleConnections()
	}
}

func isReady(ctx context.Context, client *http.Client, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
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
