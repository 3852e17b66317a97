// Package tunnel lets API servers reach nodes that they cannot dial: a node dials every server, and the server opens
// streams back through that connection.
//
// A connection begins as an HTTP/1.1 request over mutual TLS that is upgraded (Protocol) and carries multiplexed
// streams from then on. On each the server says "HOST:PORT\n". The node answers one byte, and after refused a sentence
// and the end; after accepted the stream is a connection to that address. When the server closes a stream, both
// directions are over.
//
// It links no Kubernetes: which address belongs to which node, and what a node lets a server reach, are functions
// that others pass in.
package tunnel

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

// Protocol is what the Upgrade header says.
const Protocol = "coracle-tunnel"

// The first byte of a node's answer.
const (
	accepted = '+'
	refused  = '-'
)

// The longest address and sentence of the protocol.
const (
	maxAddress  = 512
	maxSentence = 4 << 10
)

// idle is how often both ends make sure of each other; NATs forget a connection after minutes at the earliest.
const idle = 30 * time.Second

// settings are the multiplexer's. A stream has at most a megabyte under way, so that one that is not read holds up
// neither memory nor the others.
func settings() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval = idle
	c.ConnectionWriteTimeout = 30 * time.Second
	c.MaxStreamWindowSize = 1 << 20
	c.LogOutput = io.Discard // what matters comes back as errors
	return c
}

// keepAlive has the kernel notice within half a minute that the other machine has vanished.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// upgraded is a connection of which some bytes have been read ahead.
type upgraded struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads what was read ahead first.
func (u *upgraded) Read(p []byte) (int, error) {
	if u.reader != nil {
		if u.reader.Buffered() > 0 {
			return u.reader.Read(p)
		}
		u.reader = nil
	}
	return u.Conn.Read(p)
}

// ask is the server's side of the beginning of a stream.
func ask(stream io.ReadWriter, address string) error {
	if len(address) >= maxAddress || strings.ContainsAny(address, "\r\n") {
		return fmt.Errorf("%q is no address", address)
	}
	if _, err := io.WriteString(stream, address+"\n"); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(stream, answer[:]); err != nil {
		return err
	}
	switch answer[0] {
	case accepted:
		return nil
	case refused:
		sentence, err := io.ReadAll(io.LimitReader(stream, maxSentence))
		if err != nil {
			return err
		}
		return &RefusedError{Sentence: strings.TrimSpace(string(sentence))}
	}
	return fmt.Errorf("the node answered %q, which is not the protocol", answer[0])
}

// RefusedError is a node's answer that it does not connect to an address, or cannot.
type RefusedError struct{ Sentence string }

func (e *RefusedError) Error() string { return e.Sentence }

// readAddress is the node's side. It reads a byte at a time: what follows is not ours.
func readAddress(stream io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < maxAddress {
		if _, err := io.ReadFull(stream, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", fmt.Errorf("the address is longer than %d bytes", maxAddress)
}
