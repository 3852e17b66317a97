package cnievents

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSend(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan Event, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), l, func(_ context.Context, n Event) error {
			heard <- n
			if n.Verb == Del {
				return errors.New("not today")
			}
			return nil
		})
	}()
	add := Event{Verb: Add, Sandbox: "s1", Namespace: "web", Name: "front", UID: "u1", IPs: []netip.Addr{netip.MustParseAddr("10.42.0.2")}}
	if err := Send(socket, add, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; !reflect.DeepEqual(got, add) {
		t.Errorf("got %+v", got)
	}
	if err := Send(socket, Event{Verb: Del, Sandbox: "s1"}, time.Minute); err == nil || err.Error() != "not today" {
		t.Errorf("got %v", err)
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Send(socket, add, time.Minute); err == nil || !strings.Contains(err.Error(), "is coracle running?") {
		t.Errorf("got %v", err)
	}
}

// TestSendGivesUp: a pod does not wait for ever for one who says nothing.
func TestSendGivesUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Send(socket, Event{Verb: Add}, 20*time.Millisecond); err == nil || !strings.Contains(err.Error(), "coracle's answer") {
		t.Errorf("got %v", err)
	}
}
