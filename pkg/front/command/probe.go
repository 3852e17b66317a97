package command

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// probeTimeout bounds one try. A working server answers within milliseconds.
const probeTimeout = 2 * time.Second

// probeAPI connects to the API's port. The unit's own probe has seen the API answer.
func probeAPI(ctx context.Context, cfg config.Config) error {
	host := cfg.API.Bind
	if !host.IsValid() || host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	conn, err := dial(ctx, "tcp", host, cfg.API.Port)
	if err != nil {
		return fmt.Errorf("connecting to the API: %w", err)
	}
	return conn.Close()
}

func dial(ctx context.Context, network string, host netip.Addr, port uint16) (net.Conn, error) {
	d := net.Dialer{Timeout: probeTimeout}
	return d.DialContext(ctx, network, net.JoinHostPort(host.String(), strconv.Itoa(int(port))))
}

// probeDNS asks the cluster's DNS Service for the address of the API's Service.
func probeDNS(ctx context.Context, cfg config.Config) error {
	if len(cfg.Network.DNS) == 0 || cfg.Disabled("kube-proxy") {
		return nil // no kube-proxy makes the Service's address answer
	}
	server := cfg.Network.DNS[0]
	conn, err := dial(ctx, "udp", server, 53)
	if err != nil {
		return fmt.Errorf("asking %s: %w", server, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return err
	}
	name := "kubernetes.default.svc." + cfg.Network.Domain
	if _, err := conn.Write(dnsQuery(name, server.Is6() && !server.Is4In6())); err != nil {
		return fmt.Errorf("asking %s: %w", server, err)
	}
	answer := make([]byte, 1500)
	n, err := conn.Read(answer)
	if err != nil {
		return fmt.Errorf("asking %s for %s: %w", server, name, err)
	}
	if err := dnsAnswer(answer[:n]); err != nil {
		return fmt.Errorf("asking %s for %s: %w", server, name, err)
	}
	return nil
}

// dnsID identifies the answer. Each query has a socket of its own.
const dnsID = 0xC0AC

// dnsQuery encodes a question for an address, after RFC 1035.
func dnsQuery(name string, ipv6 bool) []byte {
	const (
		recursionDesired = 0x0100
		typeA, typeAAAA  = 1, 28
		classIN          = 1
	)
	q := binary.BigEndian.AppendUint16(nil, dnsID)
	q = binary.BigEndian.AppendUint16(q, recursionDesired)
	q = binary.BigEndian.AppendUint16(q, 1) // questions
	q = append(q, make([]byte, 6)...)       // the other sections are empty
	for label := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		q = append(q, byte(len(label)))
		q = append(q, label...)
	}
	q = append(q, 0)
	kind := uint16(typeA)
	if ipv6 {
		kind = typeAAAA
	}
	q = binary.BigEndian.AppendUint16(q, kind)
	return binary.BigEndian.AppendUint16(q, classIN)
}

// dnsAnswer returns an error unless the message is an answer with at least one record.
func dnsAnswer(answer []byte) error {
	const header, responseBit, codeMask = 12, 0x8000, 0x000F
	if len(answer) < header || binary.BigEndian.Uint16(answer) != dnsID {
		return errors.New("what came back is no answer")
	}
	flags := binary.BigEndian.Uint16(answer[2:])
	switch {
	case flags&responseBit == 0:
		return errors.New("what came back is no answer")
	case flags&codeMask != 0:
		return fmt.Errorf("the answer is an error, code %d", flags&codeMask)
	case binary.BigEndian.Uint16(answer[6:]) == 0:
		return errors.New("there is no such address")
	}
	return nil
}
