package tcpbalancer

import (
	"io"
	"net"
	"sync"
)

// pair is a connection of a client and its connection to a server.
type pair struct {
	client, server *net.TCPConn
	once           sync.Once
}

// carry copies both ways until both have ended. The kernel splices between TCP connections without copying to user space.
func (p *pair) carry() {
	var back sync.WaitGroup
	back.Go(func() { p.copy(p.client, p.server) })
	p.copy(p.server, p.client)
	back.Wait()
	p.once.Do(p.closeBoth)
}

// copy copies one direction, and then closes it; after an error it closes both.
func (p *pair) copy(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
		p.close()
	}
}

// close ends both connections at once, and drops data that the server has not acknowledged: its machine may be gone.
func (p *pair) close() {
	p.once.Do(func() {
		_ = p.server.SetLinger(0)
		p.closeBoth()
	})
}

func (p *pair) closeBoth() {
	_ = p.server.Close()
	_ = p.client.Close()
}
