// Package cnievents is the protocol by which the CNI plugin reports pods to the node before they get a network interface and
// after they lost it: one line of JSON each way over a unix socket. The reply to Add means that the node has put the pod's
// network policies in force.
package cnievents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Verb says what happened.
type Verb string

// What happens to a pod's sandbox.
const (
	Add  Verb = "add"  // the sandbox has addresses, and no interface yet
	Del  Verb = "del"  // its interface is gone, its addresses are released next
	Keep Verb = "keep" // all sandboxes but those of Sandboxes are gone
)

// Event is one request of the plugin.
type Event struct {
	Verb      Verb         `json:"verb"`
	Sandbox   string       `json:"sandbox,omitempty"` // the container runtime's ID
	Sandboxes []string     `json:"sandboxes,omitempty"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name,omitempty"`
	UID       string       `json:"uid,omitempty"` // as the kubelet has it
	IPs       []netip.Addr `json:"ips,omitempty"`
}

// reply is the node's answer. An empty Error means success.
type reply struct {
	Error string `json:"error,omitempty"`
}

// maxLine is the longest line in bytes: a Keep of a few thousand sandboxes.
const maxLine = 1 << 20

// Send sends an event and returns when the node has acted on it, or after a timeout.
func Send(socket string, event Event, timeout time.Duration) error {
	conn, err := net.DialTimeout("unix", socket, timeout)
	if err != nil {
		return fmt.Errorf("telling coracle of the pod (is coracle running?): %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(event); err != nil {
		return fmt.Errorf("telling coracle of the pod: %w", err)
	}
	var r reply
	if err := json.NewDecoder(io.LimitReader(conn, maxLine)).Decode(&r); err != nil {
		return fmt.Errorf("waiting for coracle's answer about the pod: %w", err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// Serve answers events with the result of handle, several at a time, until the listener is closed. handle gets ctx.
func Serve(ctx context.Context, l net.Listener, handle func(context.Context, Event) error) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting connections of the CNI plugin: %w", err)
		}
		go serve(ctx, conn, handle)
	}
}

// readTimeout is how long a line may take to arrive.
const readTimeout = 10 * time.Second

func serve(ctx context.Context, conn net.Conn, handle func(context.Context, Event) error) {
	defer conn.Close()
	if conn.SetReadDeadline(time.Now().Add(readTimeout)) != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadBytes('\n')
	if err != nil {
		return // the sender notices
	}
	var event Event
	var r reply
	if err := json.Unmarshal(line, &event); err != nil {
		r.Error = fmt.Sprintf("reading an event of a pod: %v", err)
	} else if err := handle(ctx, event); err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(r)
}
