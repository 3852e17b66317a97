package listening

import (
	"net"
	"os"
	"sync"
)

// packets is a socket for datagrams. Each user has a descriptor of its own; a datagram reaches one of them.
type packets struct {
	sockets *Sockets
	key     key
	conn    *net.UDPConn // which nobody reads
	users   map[*packetConn]bool
}

// ListenPacket is Listen for the network udp.
func (s *Sockets) ListenPacket(network, address string) (net.PacketConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, net.ErrClosed
	}
	k := key{network, address}
	one := s.packets[k]
	if one == nil {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return nil, err
		}
		udp, ok := c.(*net.UDPConn)
		if !ok {
			c.Close()
			return nil, net.UnknownNetworkError(network)
		}
		one = s.addPackets(k, udp)
	}
	own, err := duplicate(one.conn)
	if err == nil {
		defer own.Close()
		var c net.PacketConn
		if c, err = net.FilePacketConn(own); err == nil {
			user := &packetConn{UDPConn: c.(*net.UDPConn), packets: one}
			one.users[user] = true
			return user, nil
		}
	}
	s.closeUnusedPackets(one)
	return nil, err
}

func (s *Sockets) addPackets(k key, c *net.UDPConn) *packets {
	one := &packets{sockets: s, key: k, conn: c, users: map[*packetConn]bool{}}
	s.packets[k] = one
	return one
}

// closeUnusedPackets closes a socket without users, under the lock.
func (s *Sockets) closeUnusedPackets(one *packets) {
	if len(one.users) > 0 || s.inherited || s.packets[one.key] != one {
		return
	}
	delete(s.packets, one.key)
	one.conn.Close()
}

// duplicate returns another descriptor of a socket.
func duplicate(c interface{ File() (*os.File, error) }) (*os.File, error) { return c.File() }

// packetConn is one user of a packets.
type packetConn struct {
	*net.UDPConn
	packets *packets
	once    sync.Once
}

// Close implements net.PacketConn.
func (c *packetConn) Close() error {
	c.once.Do(func() {
		s := c.packets.sockets
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(c.packets.users, c)
		s.closeUnusedPackets(c.packets)
	})
	return c.UDPConn.Close()
}
