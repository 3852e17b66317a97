// Package heldsocket keeps a listening socket while the process that serves at it is restarted, so that its clients wait for the next one and are not
// refused: the kernel keeps their connections. Its Holder is in the process that restarts the other, and accepts nothing itself.
package heldsocket

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long clients may wait: in the Holder for the next process to be started, and in that one until it listens.
const Patience = 10 * time.Second

// Holder has the socket. The zero value has none yet.
type Holder struct {
	mu      sync.Mutex
	address netip.AddrPort
	file    *os.File // nil while there is none
	wait    *time.Timer
}

// Lend returns a duplicate of the socket for a process that is about to be started, which calls Take. The caller closes it. Clients of a new socket are
// refused until the process listens.
func (h *Holder) Lend(address netip.AddrPort) (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopWaiting()
	if h.address != address {
		h.forget()
	}
	if h.file == nil {
		file, err := bind(address)
		if err != nil {
			return nil, err
		}
		h.file, h.address = file, address
	}
	return duplicate(h.file)
}

// Ended is called when the process has ended, before the next Lend. Unless clients may wait for the next one, they are refused at once, otherwise if
// there is none within Patience. Then the next Lend makes another socket.
func (h *Holder) Ended(mayWait bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopWaiting()
	if !mayWait {
		h.drop()
		return
	}
	var wait *time.Timer
	wait = time.AfterFunc(Patience, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.wait == wait { // nobody has stopped it meanwhile
			h.drop()
		}
	})
	h.wait = wait
}

func (h *Holder) stopWaiting() {
	if h.wait != nil {
		h.wait.Stop()
		h.wait = nil
	}
}

// drop refuses clients, and gives up a socket that the process may have made unusable.
func (h *Holder) drop() {
	refuse(h.file)
	h.forget()
}

func (h *Holder) forget() {
	h.file.Close() // an error if there is none
	h.file = nil
}

// Close gives the socket up. Clients are refused once the process has closed it too.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopWaiting()
	h.forget()
}

// bind returns a socket that does not listen yet. Go has none of these, so this one stops listening at once. Shutdown does that for plain TCP.
func bind(address netip.AddrPort) (*os.File, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", address.String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if controlErr := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, fmt.Errorf("duplicating the socket at %s: %w", address, err)
	}
	_ = unix.SetNonblock(fd, false) // or Go would watch it, and each client would wake this process
	file := os.NewFile(uintptr(fd), "held "+address.String())
	refuse(file)
	return file, nil
}

// refuse makes the kernel refuse clients, those that wait too, until somebody listens again.
func refuse(file *os.File) {
	if file != nil {
		_ = unix.Shutdown(int(file.Fd()), unix.SHUT_RD) // an error means that it does not listen
	}
}

func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating %s: %w", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
