package hosts

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// roleDNS is the wire's name server.
const roleDNS = "dns"

// enterNet moves the calling thread into the network namespace of pid and runs f.
func enterNet(pid int, f func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network of process %d: %w", pid, err)
	}
	return f()
}

// Dial connects from the host, whatever namespace the caller is in. It fits rest.Config.Dial.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if h.init == nil {
		return nil, fmt.Errorf("host %s is down", h.Name)
	}
	var conn net.Conn
	err := On(h.init.Process.Pid, func() (err error) {
		// A resolver or a second address family would dial on another thread, in another network.
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialling on host %s: %w", h.Name, err)
		}
		conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, ap.String())
		return err
	})
	return conn, err
}

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

// serveDNS answers for ExternalName on the address of CORACLE_TEST_DNS, by UDP and TCP, and NXDOMAIN for the rest.
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
