package tcpbalancer

import (
	"io"
	"net"
	"sync"
)

// pair is a client's connection and the one to a server that it is carried over.
type pair struct {
	client, server *net.TCPConn
	once           sync.Once
}

// carry copies both ways until both have ended. Between two TCP connections the kernel moves the bytes itself.
func (p *pair) carry() {
	var back sync.WaitGroup
	back.Go(func() { p.copy(p.client, p.server) })
	p.copy(p.server, p.client)
	back.Wait()
	p.once.Do(p.closeBoth)
}

// copy hands on that one side has nothing more to say; after an error neither has.
func (p *pair) copy(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
		p.close()
	}
}

// close ends both connections at once. What the server has not taken by now is dropped: it may have vanished.
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
