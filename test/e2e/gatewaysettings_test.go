package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testGatewaySettings: the server's gateway serves HTTP/3 at its IPv4 address, and believes the balancer at its IPv6 address, which says who its clients are.
func testGatewaySettings(t *testing.T, h *hosts.Host, s *hosts.Server) {
	h.Apply(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: server}
spec: {rules: [{host: server.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: server, port: {number: 8080}}}}]}}]}
`)
	var socket net.PacketConn
	if err := hosts.On(h.PID(), func() (err error) {
		socket, err = net.ListenPacket("udp4", ":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	secure := &tls.Config{InsecureSkipVerify: true}
	way := &http3.Transport{TLSClientConfig: secure, Dial: func(ctx context.Context, _ string, config *tls.Config, settings *quic.Config) (*quic.Conn, error) {
		return transport.Dial(ctx, &net.UDPAddr{IP: h.IP.AsSlice(), Port: 443}, config, settings)
	}}
	defer way.Close()
	tcp := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return h.Dial(ctx, network, net.JoinHostPort(h.IP.String(), "443"))
	}}
	get := func(way http.RoundTripper) (string, error) {
		answer, err := (&http.Client{Transport: way, Timeout: 5 * time.Second}).Get("https://server.test/hostname")
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.Proto, " ", answer.StatusCode, " ", answer.Header.Get("Alt-Svc"), " ", strings.TrimSpace(string(body))), err
	}
	expect(t, `HTTP/2.0 200 h3=":443"; ma=3600 server`, func() (string, error) { return get(tcp) })
	expect(t, "HTTP/3.0 200  server", func() (string, error) { return get(way) })

	for header, want := range map[string]string{"PROXY TCP6 2001:db8::7 2001:db8::1 4660 80\r\n": "server", "": "EOF"} {
		expect(t, want, func() (string, error) {
			conn, err := h.Dial(t.Context(), "tcp", "[fd00:30::2]:80")
			if err != nil {
				return "", err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprint(conn, header+"GET /hostname HTTP/1.1\r\nHost: server.test\r\nConnection: close\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return "EOF", nil // or a reset, since nothing is read behind what is no header
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			return strings.TrimSpace(string(body)), err
		})
	}
	hosts.Eventually(t, 10*time.Second, func() error { return contains("the log", s.Log(), "client=2001:db8::7 ") })
}
