// Package freeport finds ports for servers of tests.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// Port returns a port at which nobody listens, neither with TCP nor with UDP, at any address. It is below those that the kernel gives to the sockets
// of other tests.
func Port(t testing.TB) uint16 {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.N(22_000)
		tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		tcp.Close()
		if err == nil {
			udp.Close()
			return uint16(port)
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Loopback returns an address of the loopback interface with such a port.
func Loopback(t testing.TB) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port(t))
}
