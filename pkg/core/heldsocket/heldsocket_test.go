package heldsocket

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/test/freeport"
)

// refused reports whether the kernel refuses a client.
func refused(t *testing.T, address netip.AddrPort) bool {
	t.Helper()
	conn, err := net.Dial("tcp", address.String())
	if err == nil {
		conn.Close()
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	return err != nil
}

// process plays one that has a socket.
func process(t *testing.T, h *Holder, address netip.AddrPort) *Lent {
	t.Helper()
	file, err := h.Lend(address)
	if err != nil {
		t.Fatal(err)
	}
	return lent(file)
}

func serve(t *testing.T, l *Lent, address netip.AddrPort) net.Listener {
	t.Helper()
	listener, err := l.Listen(address)
	if err != nil || listener == nil {
		t.Fatalf("listening on %s: %v, %v", address, listener, err)
	}
	return listener
}

// TestHeld: clients are refused before the first process listens, wait while there is none, and are served by the next.
func TestHeld(t *testing.T) {
	var h Holder
	defer h.Close()
	address := freeport.Loopback(t)
	first := process(t, &h, address)
	if !refused(t, address) {
		t.Error("it listens before anybody serves")
	}
	listener := serve(t, first, address)
	listener.Close() // as by its end
	h.Ended(true)
	waiting, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	listener = serve(t, process(t, &h, address), address)
	served, err := listener.Accept()
	if err != nil || served.RemoteAddr().String() != waiting.LocalAddr().String() {
		t.Errorf("%v, %v is served", served, err)
	}
	if again, err := first.Listen(address); again != nil || err != nil {
		t.Errorf("a socket can be used twice: %v, %v", again, err)
	}
	h.Close()
	if refused(t, address) {
		t.Error("the end of the holder ends the process's listener")
	}
	listener.Close()
	if !refused(t, address) {
		t.Error("somebody still listens")
	}
}

// TestRefused: clients may not wait, wait for too long, or the next process does not serve.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Holder
		defer h.Close()
		address := freeport.Loopback(t)
		end := func(mayWait bool) {
			serve(t, process(t, &h, address), address).Close()
			h.Ended(mayWait)
		}
		end(false)
		if !refused(t, address) {
			t.Error("clients wait although they may not")
		}
		waitsFor := func(process string) {
			time.Sleep(Patience - time.Millisecond)
			if refused(t, address) {
				t.Errorf("clients of a process that %s are refused too early", process)
			}
			time.Sleep(2 * time.Millisecond)
			if !refused(t, address) {
				t.Errorf("clients wait for ever for a process that %s", process)
			}
		}
		end(true)
		waitsFor("is not started")
		end(true)
		slow := process(t, &h, address)
		waitsFor("does not come to serve")
		defer serve(t, slow, address).Close()
		time.Sleep(2 * Patience)
		if refused(t, address) {
			t.Error("the listener of a process that serves is gone")
		}
	})
}

// TestOther: a process that is told to serve elsewhere does not get the socket.
func TestOther(t *testing.T) {
	var h Holder
	defer h.Close()
	if _, err := h.Lend(netip.AddrPort{}); err == nil {
		t.Error("no address is one")
	}
	address := freeport.Loopback(t)
	l := process(t, &h, address)
	if listener, err := l.Listen(netip.AddrPortFrom(address.Addr(), address.Port()+1)); listener != nil || err != nil {
		t.Errorf("another port: %v, %v", listener, err)
	}
	l = process(t, &h, address)
	if listener, err := l.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), address.Port())); listener != nil || err != nil {
		t.Errorf("another address: %v, %v", listener, err)
	}
	var none *Lent
	if listener, err := none.Listen(address); listener != nil || err != nil {
		t.Errorf("without a socket: %v, %v", listener, err)
	}
	everywhere := netip.AddrPortFrom(netip.IPv6Unspecified(), address.Port())
	file, err := h.Lend(everywhere)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := lent(file).Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), address.Port()))
	if err != nil || listener == nil || refused(t, address) {
		t.Fatalf("all addresses: %v, %v", listener, err)
	}
	listener.Close()
}
