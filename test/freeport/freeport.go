// Package freeport finds ports for servers of tests.
package freeport

import (
	"net"
	"net/netip"
	"testing"
)

// Loopback returns an address of the loopback interface at which nobody listens.
func Loopback(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}
