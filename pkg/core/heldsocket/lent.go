package heldsocket

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Variable is in the environment of a process that has a socket, as file descriptor 3.
const Variable = "HELD_SOCKET"

const descriptor = 3

// Lent is the socket in the process that serves at it, which uses it once: who serves again has to be started again. Nil is none.
type Lent struct {
	mu   sync.Mutex
	file *os.File // nil once it was used or given up
	wait *time.Timer
}

// Take returns the socket that this process was started with, and hides it from the processes that this one starts. It is called once, early. After
// Patience without Listen clients are refused.
func Take() *Lent {
	if os.Getenv(Variable) == "" {
		return nil
	}
	os.Unsetenv(Variable)
	if _, err := unix.Getsockname(descriptor); err != nil {
		return nil // the variable came from elsewhere, and the file is somebody's
	}
	unix.CloseOnExec(descriptor)
	return lent(os.NewFile(descriptor, "lent socket"))
}

func lent(file *os.File) *Lent {
	l := &Lent{file: file}
	l.wait = time.AfterFunc(Patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		refuse(l.file)
	})
	return l
}

// Listen returns a listener if the socket is one at address, where an unspecified address is like any other of these. It returns nil if there is no such
// socket, or if it was used before; a socket for another address is given up.
func (l *Lent) Listen(address netip.AddrPort) (net.Listener, error) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait.Stop()
	if l.file == nil {
		return nil, nil
	}
	defer func() {
		l.file.Close()
		l.file = nil
	}()
	bound, err := unix.Getsockname(int(l.file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("looking at the lent socket: %w", err)
	}
	if !same(bound, address) {
		return nil, nil
	}
	if err := unix.Listen(int(l.file.Fd()), unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	listener, err := net.FileListener(l.file)
	if err != nil {
		refuse(l.file)
	}
	return listener, err
}

func same(bound unix.Sockaddr, address netip.AddrPort) bool {
	var has netip.AddrPort
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		has = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		has = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return has.Port() == address.Port() && (has.Addr() == address.Addr() || has.Addr().IsUnspecified() && address.Addr().IsUnspecified())
}
