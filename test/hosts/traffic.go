package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// Traffic is a load of HTTP requests, which counts those that fail.
type Traffic struct {
	stop     context.CancelFunc
	workers  sync.WaitGroup
	mu       sync.Mutex
	requests int
	failures []string
}

// mostFailures is how many failures are described.
const mostFailures = 20

// StartTraffic begins to send requests for a virtual host to an URL: half of the clients keep their connections, the others make one for each request.
// Only status 200 is no failure, and no request is repeated. The network is the host's.
func (h *Host) StartTraffic(url, host string, clients int) *Traffic {
	ctx, stop := context.WithCancel(context.Background())
	t := &Traffic{stop: stop}
	for i := range clients {
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: h.Dial, DisableKeepAlives: i%2 == 1, MaxIdleConnsPerHost: 1}}
		t.workers.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				t.count(ask(client, url, host))
			}
		})
	}
	return t
}

// ask sends a request. Go's client repeats it by itself when a connection that it kept turns out to be closed, as others do not: that is an error too.
func ask(client *http.Client, url, host string) error {
	connections := 0
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connections++ }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Host = host
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case connections > 1:
		return errors.New("the connection was closed, and the client had to repeat the request")
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.200s", answer.Status, body)
	}
	return nil
}

func (t *Traffic) count(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests++; err == nil {
		return
	}
	text := fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err)
	if len(t.failures) >= mostFailures {
		text = "" // only counted
	}
	t.failures = append(t.failures, text)
}

// Requests is the number of requests so far, and how many of them have failed.
func (t *Traffic) Requests() (all, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests, len(t.failures)
}

// Stop ends the load, and returns how many requests there were and what has failed of them.
func (t *Traffic) Stop() (requests int, failures []string) {
	t.stop()
	t.workers.Wait()
	return t.requests, t.failures
}
