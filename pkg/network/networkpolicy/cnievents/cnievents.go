// Package cnievents is how the CNI plugin tells the node of pods that come and go, before they do: one line of JSON each
// way over a unix socket. An answer to a pod that comes means that whoever has to prepare for it has done so.
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

// Verb is what happens.
type Verb string

// What happens to a pod's sandbox.
const (
	Add  Verb = "add"  // it has addresses, and no link yet
	Del  Verb = "del"  // its link is gone, and its addresses are given back next
	Keep Verb = "keep" // all sandboxes but those of Sandboxes are gone
)

// Notice is one notice.
type Notice struct {
	Verb      Verb         `json:"verb"`
	Sandbox   string       `json:"sandbox,omitempty"` // the runtime's ID of it
	Sandboxes []string     `json:"sandboxes,omitempty"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name,omitempty"`
	UID       string       `json:"uid,omitempty"` // as the kubelet has it
	IPs       []netip.Addr `json:"ips,omitempty"`
}

// answer is "" if all is well.
type answer struct {
	Error string `json:"error,omitempty"`
}

// longest is how long a line may be: a Keep of a few thousand sandboxes.
const longest = 1 << 20

// Send sends a notice and returns when it has been acted on, or after a limit.
func Send(socket string, n Notice, limit time.Duration) error {
	conn, err := net.DialTimeout("unix", socket, limit)
	if err != nil {
		return fmt.Errorf("telling coracle of the pod (is coracle running?): %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(n); err != nil {
		return fmt.Errorf("telling coracle of the pod: %w", err)
	}
	var a answer
	if err := json.NewDecoder(io.LimitReader(conn, longest)).Decode(&a); err != nil {
		return fmt.Errorf("waiting for coracle's word about the pod: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// Serve answers notices with what handle returns, each on its own, until the listener is closed. ctx is handle's.
func Serve(ctx context.Context, l net.Listener, handle func(context.Context, Notice) error) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting notices of pods: %w", err)
		}
		go serve(ctx, conn, handle)
	}
}

// patience is how long a line may take to arrive.
const patience = 10 * time.Second

func serve(ctx context.Context, conn net.Conn, handle func(context.Context, Notice) error) {
	defer conn.Close()
	if conn.SetReadDeadline(time.Now().Add(patience)) != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, longest)).ReadBytes('\n')
	if err != nil {
		return // the one who asks hears of it
	}
	var n Notice
	var a answer
	if err := json.Unmarshal(line, &n); err != nil {
		a.Error = fmt.Sprintf("reading a notice of a pod: %v", err)
	} else if err := handle(ctx, n); err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(a)
}
