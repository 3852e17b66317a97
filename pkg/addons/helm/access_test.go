package helm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// deaf is an address at which nobody takes calls any more: the kernel drops them, as if the machine was not there.
func deaf(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("this kernel takes all calls")
	return ""
}

func TestDialingEnds(t *testing.T) {
	at := &url.URL{Scheme: "http", Host: deaf(t), Path: "/index.yaml"}
	ctx, enough := context.WithTimeout(t.Context(), 20*time.Second)
	defer enough()
	began := time.Now()
	_, err := access{client: clientWith(nil, 200*time.Millisecond)}.download(ctx, at, at, limit)
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || !op.Timeout() {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// TestFetchingEnds has a repository that begins to answer and does not go on.
func TestFetchingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
					_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nentries")
				}
				_, _ = io.Copy(io.Discard, theirs)
			}()
			return ours, nil
		}}
		began := time.Now()
		with := access{client: &http.Client{Transport: transport}, memorySlot: make(chan struct{}, 1)}
		_, err := source{spec: chartSpec{Repo: "http://charts.test", Chart: "web"}, charts: "/charts"}.fetch(t.Context(), with)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > fetchPatience {
			t.Errorf("after %s: %v", took, err)
		}
		transport.CloseIdleConnections()
	})
}
