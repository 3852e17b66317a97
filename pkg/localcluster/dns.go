package localcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
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

// forwardPackets forwards UDP queries, each from its own port, and their answers. A query goes to one name server after the other until one
// answers.
func forwardPackets(from net.PacketConn) {
	for {
		query := make([]byte, 4096)
		n, client, err := from.ReadFrom(query)
		if err != nil {
			return
		}
		go func() {
			for _, server := range nameservers() {
				if answer, err := exchange(server, query[:n]); err == nil {
					_, _ = from.WriteTo(answer, client)
					return
				}
			}
		}()
	}
}

// exchange sends a query to a name server and returns the answer.
func exchange(server string, query []byte) ([]byte, error) {
	conn, err := net.DialTimeout("udp", server, dnsTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(dnsTimeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
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
				if server, err := (&net.Dialer{Timeout: dnsTimeout}).DialContext(ctx, "tcp", name); err == nil {
					splice(client, server)
					return
				}
			}
		}()
	}
}

// splice copies bytes both ways until one side closes, and closes both.
func splice(client, server net.Conn) {
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	defer client.Close()
	_, _ = io.Copy(client, server)
}

const resolvConfFile = "/etc/resolv.conf"

// nameservers returns this machine's name servers as HOST:PORT, from the present content of the file.
func nameservers() (out []string) {
	for _, line := range resolvConfLines("nameserver") {
		out = append(out, net.JoinHostPort(line[1], "53"))
	}
	return out
}

// resolvConf returns a node's resolv.conf: this machine's search domains, and one name server.
func resolvConf(server netip.Addr) string {
	out := "nameserver " + server.String() + "\n"
	for _, line := range resolvConfLines("search", "domain") {
		out += strings.Join(line, " ") + "\n"
	}
	return out
}

// resolvConfLines returns the fields of those lines of this machine's resolv.conf that begin with one of the keywords and have a value.
func resolvConfLines(keywords ...string) (lines [][]string) {
	data, _ := os.ReadFile(resolvConfFile) // without the file there are none
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && slices.Contains(keywords, fields[0]) {
			lines = append(lines, fields)
		}
	}
	return lines
}
