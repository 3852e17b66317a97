package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"github.com/containerd/containerd/v2/core/streaming"
	"github.com/containerd/typeurl/v2"
)

// credentials are those of one pull: from imagePullSecrets, a credential provider, or flags of crictl and ctr. containerd hands them
// out only over a stream of its own, on which it answers requests for a host. credentials is the requesting end of that stream.
type credentials struct {
	reference string
	known     bool // whether the pull has credentials

	mu        sync.Mutex // one request at a time
	questions chan typeurl.Any
	answers   chan typeurl.Any // nil: the request could not be answered
	closed    chan struct{}
	once      sync.Once
}

func newCredentials(reference string) *credentials {
	return &credentials{reference: reference, questions: make(chan typeurl.Any), answers: make(chan typeurl.Any), closed: make(chan struct{})}
}

// Create returns the end of the stream that containerd answers on.
func (c *credentials) Create(context.Context, string) (streaming.Stream, error) {
	return &answering{credentials: c}, nil
}

// Get requests the credentials for a host. It returns empty texts if there are none.
func (c *credentials) Get(host string) (user, secret string, err error) {
	if !c.known {
		return "", "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	question, err := typeurl.MarshalAny(&transfertypes.AuthRequest{Host: host, Reference: c.reference})
	if err != nil {
		return "", "", err
	}
	select {
	case c.questions <- question:
	case <-c.closed:
		return "", "", io.ErrClosedPipe
	}
	var answer typeurl.Any
	select {
	case answer = <-c.answers:
	case <-c.closed:
		return "", "", io.ErrClosedPipe
	}
	if answer == nil {
		return "", "", errors.New("the credentials of the pull cannot be read")
	}
	var response transfertypes.AuthResponse
	if err := typeurl.UnmarshalTo(answer, &response); err != nil {
		return "", "", fmt.Errorf("reading a pull's credentials: %w", err)
	}
	if response.AuthType == transfertypes.AuthType_CREDENTIALS {
		return response.Username, response.Secret, nil
	}
	return "", response.Secret, nil
}

// Close ends the stream at both ends.
func (c *credentials) Close() { c.once.Do(func() { close(c.closed) }) }

// answering is containerd's end of the stream. It is used by one goroutine.
type answering struct {
	*credentials
	pending bool // whether the last request is unanswered
}

// Recv waits for a request. containerd calls it again without an answer if it could not answer the last one.
func (a *answering) Recv() (typeurl.Any, error) {
	if a.pending {
		if err := a.Send(nil); err != nil {
			return nil, err
		}
	}
	select {
	case q := <-a.questions:
		a.pending = true
		return q, nil
	case <-a.closed:
		return nil, io.EOF
	}
}

// Send answers the request.
func (a *answering) Send(answer typeurl.Any) error {
	a.pending = false
	select {
	case a.answers <- answer:
		return nil
	case <-a.closed:
		return io.EOF
	}
}

// Close ends the stream.
func (a *answering) Close() error {
	a.credentials.Close()
	return nil
}
