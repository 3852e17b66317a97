package coredns

import (
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
	"github.com/sirupsen/logrus"
)

// TestReadyThroughTheService: pods ask at the Service's address, which leads to the name server only once kube-proxy knows its endpoint.
// The test needs root, for port 53.
func TestReadyThroughTheService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it listens on port 53, which needs root")
	}
	apiServer, own := netip.MustParseAddr("10.43.0.1"), netip.MustParseAddr("127.53.0.11")
	var asked atomic.Int32
	serve := func(port uint16, handle func(answer *dns.Msg)) netip.AddrPort {
		address := netip.AddrPortFrom(own, port)
		conn, err := net.ListenPacket("udp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
			answer := new(dns.Msg).SetReply(query)
			answer.Answer = append(answer.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: apiServer.AsSlice(),
			})
			handle(answer)
			_ = w.WriteMsg(answer)
		})}
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { conn.Close() })
		return address
	}
	r := &running{
		DNS:         DNS{ServiceIPs: []netip.Addr{own}, Domain: "cluster.local", APIServer: apiServer},
		listen:      []netip.AddrPort{serve(10053, func(*dns.Msg) {})},
		listenKnown: make(chan struct{}), log: logrus.NewEntry(logrus.New()),
	}
	serve(53, func(answer *dns.Msg) {
		if asked.Add(1) < 3 {
			answer.Rcode, answer.Answer = dns.RcodeServerFailure, nil
		}
	})
	r.awaitReady(t.Context(), func() {}, nil)
	if n := asked.Load(); n != 0 {
		t.Errorf("without kube-proxy the Service was asked %d times", n)
	}
	r.Proxied = true
	r.awaitReady(t.Context(), func() {}, nil)
	if n := asked.Load(); n != 3 {
		t.Errorf("it is ready after the Service was asked %d times, want 3", n)
	}
}
