package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

func nameServers(ctx context.Context, m *Machine) []Verdict {
	file := m.Config.Node.ResolvConf
	if file == "" {
		file = "/etc/resolv.conf"
	}
	var servers []netip.Addr
	m.fields(file, func(f []string) {
		if len(f) > 1 && f[0] == "nameserver" {
			if ip, err := netip.ParseAddr(f[1]); err == nil {
				servers = append(servers, ip)
			}
		}
	})
	answers := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		asking.Go(func() { answers[i] = AskName(ctx, netip.AddrPortFrom(s, 53), ".") })
	}
	asking.Wait()
	return judgeNameServers(file, servers, answers)
}

func judgeNameServers(file string, servers []netip.Addr, answers []error) []Verdict {
	if len(servers) == 0 {
		return Warnf("name one in "+file+", or --resolv-conf FILE; without the Internet nothing has to be done",
			"%s names no name server: names outside the cluster will not resolve", file)
	}
	var out []Verdict
	var good []string
	for i, s := range servers {
		if answers[i] == nil {
			good = append(good, s.String())
			continue
		}
		out = append(out, Warnf("name another one in "+file+"; without the Internet nothing has to be done",
			"the name server %s does not answer: %v", s, answers[i])...)
	}
	if len(good) == 0 {
		return append(out, Warnf("name one in "+file+" that answers", "no name outside the cluster can be resolved")...)
	}
	return Else(out, Okf("%s answers", strings.Join(good, ", ")))
}

// askTimeout is for one question. A name server that has to ask others may take that long.
const askTimeout = time.Second

// AskName asks a name server for the addresses of a name, or for the name servers of the root if it is ".". It is nil if
// the server gives any answer, even that there is no such name: it is there.
func AskName(ctx context.Context, server netip.AddrPort, name string) error {
	_, err := Resolve(ctx, server, name, false)
	if errors.As(err, new(Refused)) {
		return nil
	}
	return err
}

// Refused is a name server's answer that is an error: its code after RFC 1035.
type Refused int

// NoName is the answer that there is no such name.
const NoName = Refused(dnsmessage.RCodeNameError)

// Error tells the code, by its name where that is known.
func (r Refused) Error() string {
	switch dnsmessage.RCode(r) {
	case dnsmessage.RCodeServerFailure:
		return "it answers that it has failed (SERVFAIL)"
	case dnsmessage.RCodeNameError:
		return "it knows no such name (NXDOMAIN)"
	case dnsmessage.RCodeRefused:
		return "it refuses to answer (REFUSED)"
	}
	return fmt.Sprintf("it answers with error %d", int(r))
}

// Resolve asks a name server for the IPv4 or the IPv6 addresses of a name; of the root ".", for anything. It asks twice,
// because a packet may be lost.
func Resolve(ctx context.Context, server netip.AddrPort, name string, v6 bool) ([]netip.Addr, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server.String())
	if err != nil {
		return nil, plain(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	query, err := question(name, v6)
	if err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	for range 2 {
		_ = conn.SetDeadline(time.Now().Add(askTimeout))
		if _, err = conn.Write(query); err != nil {
			break
		}
		var n int
		if n, err = conn.Read(answer); err == nil {
			return addresses(answer[:n])
		}
	}
	return nil, plain(err)
}

// plain shortens what the network says.
func plain(err error) error {
	var timeout net.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	}
	return err
}

const questionID = 0xC0AD

// question asks for addresses, or for name servers of the root.
func question(name string, v6 bool) ([]byte, error) {
	kind := dnsmessage.TypeA
	switch {
	case name == ".":
		kind = dnsmessage.TypeNS
	case v6:
		kind = dnsmessage.TypeAAAA
	}
	absolute, err := dnsmessage.NewName(strings.Trim(name, ".") + ".")
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: questionID, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: absolute, Type: kind, Class: dnsmessage.ClassINET}}}
	return m.Pack()
}

// addresses returns the addresses in an answer, which may have been cut off.
func addresses(b []byte) (out []netip.Addr, err error) {
	var p dnsmessage.Parser
	header, err := p.Start(b)
	if err != nil || header.ID != questionID {
		return nil, errors.New("what comes back is no answer")
	}
	if header.RCode != dnsmessage.RCodeSuccess {
		return nil, Refused(header.RCode)
	}
	for err = p.SkipAllQuestions(); err == nil; {
		var r dnsmessage.Resource
		r, err = p.Answer()
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(body.AAAA))
		}
	}
	return out, nil
}

// server looks at the server that the machine is to join: the way there, and what time it is there.
func server(ctx context.Context, m *Machine) []Verdict {
	if m.Config.Join.Server == "" {
		if m.Config.Role == config.Agent && !m.Config.Join.Joined {
			return Skipf("no --server is given, and the machine has not joined any yet")
		}
		return Skipf("there is none to join")
	}
	began := time.Now()
	date, err := ServerDate(ctx, m.Config.Join.Server)
	if err != nil {
		host := m.Config.Join.Server
		if u, err := url.Parse(host); err == nil {
			host = u.Host
		}
		return Failf("see whether coracle runs there, whether the address is right, and whether a firewall lets tcp through: nc -vz "+
			strings.Replace(host, ":", " ", 1), "the server %s cannot be reached: %v", m.Config.Join.Server, plain(err))
	}
	return JudgeSkew(m.Config.Join.Server, date, began, time.Now())
}

// ServerDate asks a server, https://HOST:PORT, what time it is. Nothing secret is said, so its certificate does not matter.
func ServerDate(ctx context.Context, server string) (time.Time, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext:     (&net.Dialer{Timeout: 2 * askTimeout}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/healthz", nil)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	answer.Body.Close()
	return http.ParseTime(answer.Header.Get("Date"))
}

// JudgeSkew judges a server's time, which came in an answer between two moments here. It is told in whole seconds.
func JudgeSkew(server string, date, began, ended time.Time) []Verdict {
	const tolerated, broken = 5 * time.Second, 5 * time.Minute
	var skew time.Duration
	switch {
	case date.Before(began.Add(-time.Second)):
		skew = began.Sub(date)
	case date.After(ended):
		skew = date.Sub(ended)
	}
	const fix = "run chrony or systemd-timesyncd on all machines"
	switch {
	case skew > broken:
		return Failf(fix, "the clock of %s differs by %s: certificates and tokens may not be valid here or there", server, skew.Round(time.Second))
	case skew > tolerated:
		return Warnf(fix, "the clock of %s differs by %s", server, skew.Round(time.Second))
	}
	return Okf("%s answers, and its clock agrees", server)
}
