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

// credentials are those that a pull brought along: of imagePullSecrets, of a credential provider, of crictl's and ctr's flags.
// containerd keeps them where only its own messages reach, so this plays the other end of such a stream.
type credentials struct {
	reference string
	known     bool // there is somebody to ask

	mu        sync.Mutex // one question at a time
	questions chan typeurl.Any
	answers   chan typeurl.Any // nil is none
	closed    chan struct{}
	once      sync.Once
}

func newCredentials(reference string) *credentials {
	return &credentials{reference: reference, questions: make(chan typeurl.Any), answers: make(chan typeurl.Any), closed: make(chan struct{})}
}

// Create is the end of the stream that containerd is given.
func (c *credentials) Create(context.Context, string) (streaming.Stream, error) {
	return &answering{credentials: c}, nil
}

// Get asks for the credentials for a host; empty ones are none.
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
		return "", "", errors.New("the credentials that came with the pull cannot be read")
	}
	var said transfertypes.AuthResponse
	if err := typeurl.UnmarshalTo(answer, &said); err != nil {
		return "", "", fmt.Errorf("reading a pull's credentials: %w", err)
	}
	if said.AuthType == transfertypes.AuthType_CREDENTIALS {
		return said.Username, said.Secret, nil
	}
	return "", said.Secret, nil
}

// Close ends the stream, and with it who answers.
func (c *credentials) Close() { c.once.Do(func() { close(c.closed) }) }

// answering is the stream's other end, for one goroutine.
type answering struct {
	*credentials
	asked bool // and not answered yet
}

// Recv waits for a question. Who waits for another one has no answer to the last.
func (a *answering) Recv() (typeurl.Any, error) {
	if a.asked {
		if err := a.Send(nil); err != nil {
			return nil, err
		}
	}
	select {
	case q := <-a.questions:
		a.asked = true
		return q, nil
	case <-a.closed:
		return nil, io.EOF
	}
}

// Send answers it.
func (a *answering) Send(answer typeurl.Any) error {
	a.asked = false
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
