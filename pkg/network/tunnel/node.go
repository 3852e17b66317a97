package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Node is the node's end of tunnels.
type Node struct {
	Path string // of the request
	// TLS returns the configuration with the roots for servers and the node's certificate. NextProtos is overwritten.
	TLS func() (*tls.Config, error)
	// Allow returns the address to connect to when a server requests an address, or an error, which is sent to the server.
	Allow func(address string) (string, error)
}

// Timeouts of the steps of a connection.
const (
	connectTimeout = 10 * time.Second
	localTimeout   = 5 * time.Second
)

// Connect dials a server, HOST:PORT, and serves it until the connection ends or ctx is done. It calls up when the tunnel is
// established. The error says why the tunnel ended.
func (n Node) Connect(ctx context.Context, server string, up func()) error {
	conn, err := n.dial(ctx, server)
	if err != nil {
		return err
	}
	session, err := newSession(conn, true, newAllowance())
	if err != nil {
		return err
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	up()
	for {
		stream, err := session.accept()
		if err != nil {
			return err
		}
		go n.serve(ctx, stream)
	}
}

// dial connects to a server and upgrades the connection.
func (n Node) dial(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config, err := n.TLS()
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrade
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, config)
	stop := context.AfterFunc(ctx, func() { _ = plain.Close() })
	reader, err := n.upgrade(ctx, conn, server)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = plain.Close()
		return nil, err
	}
	return &upgraded{conn, reader}, nil
}

func (n Node) upgrade(ctx context.Context, conn *tls.Conn, server string) (*bufio.Reader, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nUser-Agent: coracle\r\n\r\n",
		n.Path, server, Protocol); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, fmt.Errorf("reading its answer: %w", err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxSentence)) // the status alone is enough
		return nil, answerError(response.StatusCode, body)
	}
	return reader, nil
}

// answerError returns the error for an answer, which is JSON with a message or plain text.
func answerError(status int, body []byte) *AnswerError {
	var answer struct {
		Message string `json:"message"`
		Reason  string `json:"reason"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		return &AnswerError{Status: status, Sentence: answer.Message, Reason: answer.Reason}
	}
	return &AnswerError{Status: status, Sentence: strings.TrimSpace(string(body))}
}

// AnswerError is the answer of a server that refuses a tunnel.
type AnswerError struct {
	Status   int // of HTTP
	Sentence string
	Reason   string // for programs, "" if the answer has none
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("it answers %d %s: %s", e.Status, http.StatusText(e.Status), e.Sentence)
}

// serve connects one stream to its target.
func (n Node) serve(ctx context.Context, stream *stream) {
	defer stream.Close()
	_ = stream.SetReadDeadline(time.Now().Add(connectTimeout))
	address, err := readAddress(stream)
	if err != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	target, err := n.local(ctx, address)
	if err != nil {
		_, _ = fmt.Fprintf(stream, "%c%s\n", refused, err) // without the message the end of the stream has to do
		return
	}
	defer target.Close()
	defer context.AfterFunc(ctx, func() { _ = target.Close() })()
	if _, err := stream.Write([]byte{accepted}); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(target, stream) // the server has closed the stream, or it failed
		_ = target.Close()
	}()
	_, _ = io.Copy(stream, target) // the end of the target ends the stream
}

// local connects to an address, if the server may reach it.
func (n Node) local(ctx context.Context, address string) (net.Conn, error) {
	to, err := n.Allow(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, "tcp", to)
}
