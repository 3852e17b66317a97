package dataplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testBackendTLS: a backend that cannot show the certificate that the configuration asks for gets no request.
func testBackendTLS(t *testing.T, s *served, config gateway.Config, port uint16) {
	good, evil := newAuthority(t, "good"), newAuthority(t, "evil")
	own, _ := good.issue(t, "Secret g/own", "gateway.test")
	requests := 0
	start := func(by *authority, names ...string) string {
		_, pair := by.issue(t, "backend", names...)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			client := ""
			if len(r.TLS.PeerCertificates) > 0 {
				client = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			fmt.Fprint(w, r.TLS.ServerName, " ", r.Host, " ", r.ProtoMajor, " ", client)
		}))
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
		server.Config.ErrorLog = quiet
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	endpoints := gateway.Endpoints{"good": {start(good, "b.test", "other.test", "spiffe://cluster/b")}, "evil": {start(evil, "b.test")}}
	config.Certificates, config.Routes = []gateway.Certificate{own}, nil
	add := func(path, key string, protocol gateway.BackendProtocol, to gateway.BackendTLS) {
		r := route("t.test", path, key, protocol)
		r.Backends[0].TLS = &to
		config.Routes = append(config.Routes, r)
	}
	add("/name", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Authorities: good.pem()})
	add("/h2", "good", gateway.ToH2C, gateway.BackendTLS{Host: "b.test", Authorities: good.pem()})
	add("/san", "good", gateway.ToHTTPS, gateway.BackendTLS{Host: "sni.test", Names: []string{"x.test", "other.test"}, Authorities: good.pem()})
	add("/uri", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Names: []string{"spiffe://cluster/b"}, Authorities: good.pem()})
	add("/client", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Authorities: good.pem(), Certificate: own.Source})
	add("/bad/name", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "c.test", Authorities: good.pem()})
	add("/bad/san", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Names: []string{"x.test", "spiffe://cluster/c"}, Authorities: good.pem()})
	add("/bad/authority", "evil", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Authorities: good.pem()})
	add("/bad/system", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test"})
	add("/bad/garbage", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Authorities: "garbage"})
	add("/bad/missing", "good", gateway.ToHTTP, gateway.BackendTLS{Host: "b.test", Authorities: good.pem(), Certificate: "Secret g/missing"})
	s.apply(t, config, endpoints)
	for path, want := range map[string]string{
		"/name": "b.test t.test 2 ", "/h2": "b.test t.test 2 ", "/san": "sni.test t.test 2 ", "/uri": "b.test t.test 2 ", "/client": "b.test t.test 2 Secret g/own",
	} {
		s.get(t, port, "t.test", path, 200, want)
	}
	before := requests
	for _, r := range config.Routes {
		if strings.HasPrefix(r.Path, "/bad/") {
			s.get(t, port, "t.test", r.Path, 502, "the backend gave no answer")
		}
	}
	if requests != before {
		t.Errorf("%d requests to backends that are not what they should be", requests-before)
	}
	ways := s.current.Load().transports
	if len(ways.shared) != len(config.Routes)-1 { // two differ in their endpoints only
		t.Errorf("%d ways", len(ways.shared))
	}
	config.Routes = config.Routes[:1]
	s.apply(t, config, endpoints)
	now := s.current.Load().transports
	if len(now.shared) != 1 {
		t.Errorf("%d ways after the others are gone", len(now.shared))
	}
	for kind, w := range now.shared {
		if ways.shared[kind] != w {
			t.Error("the connections to a backend are lost")
		}
	}
}

// testGRPC: calls, streams and errors of gRPC go through, and what no backend gets is answered as gRPC does.
func testGRPC(t *testing.T, s *served, config gateway.Config, port uint16) {
	server := grpc.NewServer()
	checks := health.NewServer()
	healthpb.RegisterHealthServer(server, checks)
	listener := listenAny(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	config.Routes = []gateway.Route{route("g.test", "/grpc.health.v1.Health", "g", gateway.ToH2C), route("n.test", "/", "none", gateway.ToH2C)}
	s.apply(t, config, gateway.Endpoints{"g": {listener.Addr().String()}})
	call := func(host string) healthpb.HealthClient {
		conn, err := grpc.NewClient(fmt.Sprintf("passthrough:127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return healthpb.NewHealthClient(conn)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-a", "1"), 10*time.Second)
	defer cancel()
	client := call("g.test")
	if answer, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", answer, err)
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"}); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "s"})
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVICE_UNKNOWN, healthpb.HealthCheckResponse_NOT_SERVING} {
		if err != nil {
			t.Fatal(err)
		}
		var answer *healthpb.HealthCheckResponse
		if answer, err = stream.Recv(); err == nil && answer.Status != want {
			t.Errorf("%v, want %v", answer, want)
		}
		checks.SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
	}
	for host, want := range map[string]codes.Code{"x.test": codes.Unimplemented, "n.test": codes.Unavailable} {
		if _, err := call(host).Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", host, err, want)
		}
	}
}
