package sockets

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestShutdown: a connection is found by the address of its other end, and ended if it still leads there.
func TestShutdown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ours, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	from := netip.MustParseAddrPort(ours.LocalAddr().String())
	is := func(fd int) bool { return Address(unix.Getpeername(fd)) == from }
	found := 0
	for _, fd := range Descriptors() {
		if is(fd) {
			found = fd
		}
	}
	if found == 0 {
		t.Fatal("the connection is not found")
	}
	Shutdown(found, func(int) bool { return false })
	if _, err := theirs.Write([]byte("x")); err != nil {
		t.Error("another connection was ended: ", err)
	}
	Shutdown(found, is)
	_ = theirs.SetDeadline(time.Now().Add(time.Minute))
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error("it was not ended: ", err)
	}
}

func TestSource(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Source(netip.MustParseAddr(at)); got.String() != want {
			t.Errorf("%s counts as %s", at, got)
		}
	}
	if Source(netip.Addr{}).IsValid() {
		t.Error("no address is one")
	}
}
