package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	upstream "github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testSilentClients: a body that stalls is given up, but clients of streams may be silent for longer.
func testSilentClients(t *testing.T, s *served, config gateway.Config, plain, secure uint16) {
	defer func(before limits) { s.limits = before }(s.limits)
	s.limits.body = 300 * time.Millisecond
	silence := 4 * s.limits.body
	echoes := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			var said healthpb.HealthCheckRequest
			if err := stream.RecvMsg(&said); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(&said); err != nil {
				return err
			}
		}
	}))
	listener := listenAny(t)
	go func() { _ = echoes.Serve(listener) }()
	t.Cleanup(echoes.Stop)
	backend := httptest.NewServer(http.HandlerFunc(echoUpgraded))
	t.Cleanup(backend.Close)

	config.Routes = []gateway.Route{route("", "/a.B/", "grpc", gateway.ToH2C), route("", "/", "http", gateway.ToHTTP)}
	config.HTTP3 = []uint16{secure}
	s.apply(t, config, gateway.Endpoints{"grpc": {listener.Addr().String()}, "http": {backend.Listener.Addr().String()}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	t.Run("a stream of gRPC", func(t *testing.T) {
		conn, err := grpc.NewClient(fmt.Sprintf("passthrough:127.0.0.1:%d", plain), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("a.test"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/a.B/Chat")
		if err != nil {
			t.Fatal(err)
		}
		for _, say := range []string{"one", "two"} {
			var said healthpb.HealthCheckRequest
			if err := errors.Join(stream.SendMsg(&healthpb.HealthCheckRequest{Service: say}), stream.RecvMsg(&said)); err != nil || said.Service != say {
				t.Fatalf("%s: %q, %v", say, said.Service, err)
			}
			<-time.After(silence)
		}
	})
	t.Run("a WebSocket in HTTP/3", func(t *testing.T) {
		str := connectHTTP3(ctx, t, secure)
		silence := idleHTTP3 + time.Second
		for _, say := range []string{"one\n", "two\n"} {
			heard := make([]byte, len(say))
			if _, err := io.WriteString(str, say); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(str, heard); err != nil || string(heard) != say {
				t.Fatalf("%q, %v", heard, err)
			}
			<-time.After(silence)
		}
	})
	t.Run("another body", func(t *testing.T) {
		body, slowly := io.Pipe()
		defer slowly.Close()
		go func() { _, _ = io.WriteString(slowly, "one") }()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/", plain), body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Errorf("a body that stalls gets %s", answer.Status)
		}
	})
}

// echoUpgraded says what a WebSocket's client says, and reads the bodies of other requests.
func echoUpgraded(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(conn, buffered)
}

// idleHTTP3 is how long a connection of connectHTTP3 lasts of which nothing is heard.
const idleHTTP3 = 3 * time.Second

// connectHTTP3 begins a WebSocket in HTTP/3, as far as HTTP is concerned.
func connectHTTP3(ctx context.Context, t *testing.T, port uint16) *upstream.RequestStream {
	t.Helper()
	conn, err := quic.DialAddr(ctx, fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true, ServerName: "a.test", NextProtos: []string{upstream.NextProtoH3}}, &quic.Config{MaxIdleTimeout: idleHTTP3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	one := (&upstream.Transport{}).NewClientConn(conn)
	<-one.ReceivedSettings()
	str, err := one.OpenRequestStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = str.SetDeadline(time.Now().Add(20 * time.Second))
	request, _ := http.NewRequestWithContext(ctx, http.MethodConnect, "https://a.test/chat", nil)
	request.Proto = "websocket"
	request.Header.Set("Sec-WebSocket-Version", "13")
	if err := str.SendRequestHeader(request); err != nil {
		t.Fatal(err)
	}
	answer, err := str.ReadResponse()
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%+v %v", answer, err)
	}
	return str
}
