// Package tunnel lets API servers reach nodes that they cannot dial: a node dials every server, and the server opens streams to the
// node through that connection.
//
// A connection begins as an HTTP/1.1 request over mutual TLS with an Upgrade to Protocol, and then carries multiplexed streams. On
// each stream the server sends "HOST:PORT\n", and the node answers with one byte. After accepted, the stream is a connection to
// that address; after refused, the node sends a message and closes the stream. When the server closes a stream, both directions end.
//
// The package links no Kubernetes: its users pass functions that map an address to its node and that say what a server may reach.
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

// Protocol is the value of the Upgrade header.
const Protocol = "coracle-tunnel"

// The first byte of a node's answer.
const (
	accepted = '+'
	refused  = '-'
)

// The longest address and message of the protocol, in bytes.
const (
	maxAddress  = 512
	maxSentence = 4 << 10
)

// keepAliveInterval is how often both ends ping each other. NATs keep an idle connection for at least some minutes.
const keepAliveInterval = 30 * time.Second

// yamuxConfig is the configuration of the multiplexer. A stream that is not read buffers at most its window; see allowance for all of them.
func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval = keepAliveInterval
	c.ConnectionWriteTimeout = 30 * time.Second
	c.MaxStreamWindowSize = maxWindow
	c.StreamCloseTimeout = closeTimeout
	c.LogOutput = io.Discard // methods return the errors that matter
	return c
}

// keepAlive makes the kernel notice within 30 s that the other machine is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// upgraded is a connection with some bytes in a read buffer.
type upgraded struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads the buffered bytes first.
func (u *upgraded) Read(p []byte) (int, error) { return u.reader.Read(p) }

// requestAddress is the server's part of the beginning of a stream.
func requestAddress(stream io.ReadWriter, address string) error {
	if len(address) >= maxAddress || strings.ContainsAny(address, "\r\n") {
		return fmt.Errorf("%q is not an address", address)
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

// RefusedError is the answer of a node that may not or cannot connect to an address.
type RefusedError struct{ Sentence string }

func (e *RefusedError) Error() string { return e.Sentence }

// readAddress is the node's part of the beginning of a stream. It reads byte by byte, as the rest is for the target.
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
