package announcer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/addressvote"
)

// peer is the connection to one server.
type peer struct {
	Announcer
	name, dial string
	beats      chan addressvote.Beat // the latest
	answers    chan<- answer
	stop       context.CancelFunc
}

// Timing of connections. A server that does not answer for patience is dialed again.
const (
	dialTimeout = time.Second
	dialPause   = addressvote.Interval / 2
	patience    = addressvote.Term
)

// errStarting is the error for a server that cannot be asked yet, and has not answered anybody.
var errStarting = errors.New("the server is starting")

// send replaces the Beat that is to be sent next. Only the yields of one that was not sent stay.
func (p *peer) send(b addressvote.Beat) {
	select {
	case unsent := <-p.beats:
		b.Yields = slices.Concat(unsent.Yields, b.Yields)
	default:
	}
	p.beats <- b
}

// run keeps the connection until ctx is done.
func (p *peer) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := p.talk(ctx)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errStarting) {
			p.report(ctx, answer{server: p.name, refused: true, at: began})
		}
		_ = lifecycle.Sleep(ctx, dialPause)
	}
}

func (p *peer) report(ctx context.Context, a answer) {
	select {
	case p.answers <- a:
	case <-ctx.Done():
	}
}

// talk sends Beats and takes answers over one connection.
func (p *peer) talk(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := p.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	body, beats := io.Pipe()
	defer beats.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.dial+p.Path, body)
	if err != nil {
		return err
	}
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.Header.Get(p.Starting) != "":
		return errStarting
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the server answers %s", response.Status)
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() { p.write(ctx, beats) })
	decoder := json.NewDecoder(response.Body)
	for {
		var b addressvote.Ballot
		if err := decoder.Decode(&b); err != nil {
			return err
		}
		silence.Reset(patience)
		p.report(ctx, answer{server: p.name, ballot: b})
	}
}

// write sends Beats until ctx is done or the connection ends.
func (p *peer) write(ctx context.Context, to *io.PipeWriter) {
	defer context.AfterFunc(ctx, func() { _ = to.Close() })()
	encoder := json.NewEncoder(to)
	for {
		select {
		case b := <-p.beats:
			if encoder.Encode(b) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// client returns a client for one connection.
func (a Announcer) client() (*http.Client, error) {
	secure, err := kube.NodeTLS(a.CA, a.Cert, a.Key)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     secure,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
	}}, nil
}
