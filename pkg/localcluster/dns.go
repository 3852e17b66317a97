package localcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// dnsTimeout limits a query to one of this machine's name servers.
const dnsTimeout = 5 * time.Second

// serveDNS forwards the nodes' queries to this machine's name servers. It sends them from this machine's network, because those servers may
// listen on its loopback only, and its firewall may drop the nodes' packets.
func serveDNS(ctx context.Context, wire *nshost.Wire, at netip.Addr) error {
	address := netip.AddrPortFrom(at, 53).String()
	var packets net.PacketConn
	var listener net.Listener
	err := wire.On(func() (err error) {
		if packets, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return fmt.Errorf("answering DNS for the nodes: %w", err)
	}
	go forwardPackets(packets)
	go forwardStreams(ctx, listener)
	return nil
}

// forwardPackets forwards UDP queries, each from its own port, and their answers.
func forwardPackets(from net.PacketConn) {
	for {
		question := make([]byte, 4096)
		n, client, err := from.ReadFrom(question)
		if err != nil {
			return
		}
		go func() {
			if answer, err := ask(question[:n]); err == nil {
				_, _ = from.WriteTo(answer, client)
			}
		}()
	}
}

// ask sends a query to this machine's name servers, one after the other, until one answers.
func ask(question []byte) (answer []byte, err error) {
	for _, server := range nameservers() {
		var conn net.Conn
		if conn, err = net.DialTimeout("udp", server, dnsTimeout); err != nil {
			continue
		}
		answer, err = exchange(conn, question)
		conn.Close()
		if err == nil {
			return answer, nil
		}
	}
	return nil, err
}

func exchange(conn net.Conn, question []byte) ([]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(dnsTimeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	answer := make([]byte, 65535)
	n, err := conn.Read(answer)
	return answer[:n], err
}

// forwardStreams forwards queries over TCP.
func forwardStreams(ctx context.Context, from net.Listener) {
	for {
		client, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			for _, name := range nameservers() {
				server, err := (&net.Dialer{Timeout: dnsTimeout}).DialContext(ctx, "tcp", name)
				if err == nil {
					splice(client, server)
					return
				}
			}
		}()
	}
}

// splice copies bytes both ways until one side closes.
func splice(a, b net.Conn) {
	done := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go pass(a, b)
	go pass(b, a)
	<-done
	a.Close()
	b.Close()
	<-done
}

const resolvConfFile = "/etc/resolv.conf"

// nameservers returns this machine's name servers as HOST:PORT, from the present content of the file.
func nameservers() (out []string) {
	data, err := os.ReadFile(resolvConfFile)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			out = append(out, net.JoinHostPort(fields[1], "53"))
		}
	}
	return out
}

// resolvConf returns a node's resolv.conf: this machine's search domains, and one name server.
func resolvConf(server netip.Addr) string {
	out := "nameserver " + server.String() + "\n"
	data, err := os.ReadFile(resolvConfFile)
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && (fields[0] == "search" || fields[0] == "domain") {
			out += strings.Join(fields, " ") + "\n"
		}
	}
	return out
}
