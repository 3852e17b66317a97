package listening

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"
)

// headerTimeout is how long the header of the PROXY protocol may take to come. Balancers send it first of all.
const headerTimeout = 5 * time.Second

// Lengths in bytes of such headers.
const (
	maxLine      = 107  // of version 1, which is a line of text
	binaryStart  = 16   // of version 2 up to its addresses, the last two of which are the length of the rest
	maxRest      = 4096 // of version 2, with room for a client's certificate
	signatureLen = 12   // of version 2; a line is longer
)

// TrustProxies sets the networks whose connections begin with a header of the PROXY protocol that names the client. From others nothing is believed.
func (s *Sockets) TrustProxies(networks []netip.Prefix) { s.proxies.Store(&networks) }

// Proxied reports whether a client's connections must begin with a header.
func (s *Sockets) Proxied(from net.Addr) bool {
	networks := s.proxies.Load()
	tcp, ok := from.(interface{ AddrPort() netip.AddrPort })
	if networks == nil || !ok {
		return false
	}
	at := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, n := range *networks {
		if n.Contains(at) {
			return true
		}
	}
	return false
}

// introduce reads the header of a connection, and gives it the address of its client. One that the balancer makes for itself keeps its own.
func (c *conn) introduce() error {
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
	text, err := readHeader(c.TCPConn)
	if err != nil {
		return fmt.Errorf("reading the PROXY header: %w", err)
	}
	header, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return err
	}
	if !header.Command.IsLocal() {
		client, ok := header.SourceAddr.(*net.TCPAddr)
		if !ok {
			return errors.New("the PROXY header names a client that does not use TCP")
		}
		c.client = client
	}
	return c.SetReadDeadline(time.Time{})
}

// readHeader reads a header and nothing behind it.
func readHeader(r io.Reader) ([]byte, error) {
	text := make([]byte, signatureLen, binaryStart)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	if bytes.Equal(text, proxyproto.SIGV2) {
		return readBinary(r, text)
	}
	for bytes.HasPrefix(text, proxyproto.SIGV1) && len(text) < maxLine {
		text = append(text, 0)
		if _, err := io.ReadFull(r, text[len(text)-1:]); err != nil {
			return nil, err
		}
		if text[len(text)-1] == '\n' {
			return text, nil
		}
	}
	return nil, errors.New("there is none")
}

func readBinary(r io.Reader, text []byte) ([]byte, error) {
	text = text[:binaryStart]
	if _, err := io.ReadFull(r, text[signatureLen:]); err != nil {
		return nil, err
	}
	rest := int(binary.BigEndian.Uint16(text[binaryStart-2:]))
	if rest > maxRest {
		return nil, fmt.Errorf("it has more than %d bytes", maxRest)
	}
	text = append(text, make([]byte, rest)...)
	_, err := io.ReadFull(r, text[binaryStart:])
	return text, err
}
