package hosts

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/miekg/dns"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// roleDNS is the wire's name server.
const roleDNS = "dns"

// Dial connects from the host's network namespace. It fits rest.Config.Dial.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return h.vm.Dial(ctx, network, address)
}

// Listen listens in the host's network namespace.
func (h *Host) Listen(network, address string) net.Listener {
	h.t.Helper()
	var listener net.Listener
	h.must(On(h.PID(), func() (err error) {
		listener, err = net.Listen(network, address)
		return err
	}))
	return listener
}

// On runs f on a thread in the network namespace of the process pid, for example to dial from there.
func On(pid int, f func() error) error { return nshost.On(pid, f) }

// Get fetches a URL from the host; its host part is an address. Any other status than 200 is an error.
func (h *Host) Get(url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: h.Dial, DisableKeepAlives: true}, Timeout: 3 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// serveDNS answers queries for ExternalName on the address in CORACLE_TEST_DNS, over UDP and TCP. It answers all other
// queries with NXDOMAIN.
func serveDNS() error {
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		switch question := q.Question[0]; {
		case question.Name != dns.Fqdn(ExternalName):
			m.Rcode = dns.RcodeNameError
		case question.Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5},
				A:   net.ParseIP(ExternalIP),
			}}
		}
		_ = w.WriteMsg(m)
	})
	address := os.Getenv("CORACLE_TEST_DNS")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() { _ = dns.ActivateAndServe(listener, nil, answer) }()
	if _, err := os.Stdout.Write([]byte("\n")); err != nil {
		return err
	}
	return dns.ActivateAndServe(nil, packets, answer)
}
