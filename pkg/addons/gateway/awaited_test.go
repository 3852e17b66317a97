package gateway

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// TestAddressThatComes: nothing is asked for a Gateway whose own address accepts no connections yet, so that nothing fails, and others do not wait. It is asked soon after the address
// is there.
func TestAddressThatComes(t *testing.T) {
	c := newCertificates(t)
	w, own, web := c.leader(), want("infra", "own", "a.test"), want("shop", "web", "b.test")
	own.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.19")}
	again := c.run(t, w, own, web)
	if wait := time.Until(again); wait > 2*dialAgain {
		t.Errorf("it looks again after %s", wait)
	}
	if n := c.server.Count("Added order"); n != 1 {
		t.Errorf("%d orders", n)
	}
	c.stored(t, web)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.19", strconv.Itoa(c.port)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.run(t, w, own, web)
	c.stored(t, own)
	// What this server does not reach at all is asked for nevertheless.
	far := want("infra", "far", "full.test")
	far.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.29")}
	c.run(t, w, far)
	w.awaited[far.Addresses[0]] = time.Now().Add(-longestFor)
	c.run(t, w, far)
	c.stored(t, far)
}
