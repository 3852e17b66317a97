package check

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

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
const NoName Refused = 3

// Error tells the code, by its name where that is known.
func (r Refused) Error() string {
	const serverFailure, refused = 2, 5
	switch r {
	case serverFailure:
		return "it answers that it has failed (SERVFAIL)"
	case NoName:
		return "it knows no such name (NXDOMAIN)"
	case refused:
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
	answer := make([]byte, 4096)
	for range 2 {
		_ = conn.SetDeadline(time.Now().Add(askTimeout))
		if _, err = conn.Write(question(name, v6)); err != nil {
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

// Types of records.
const typeA, typeNS, typeAAAA = 1, 2, 28

// question asks for addresses, or for name servers of the root.
func question(name string, v6 bool) []byte {
	const recursion, classIN = 0x0100, 1
	q := binary.BigEndian.AppendUint16(nil, questionID)
	q = binary.BigEndian.AppendUint16(q, recursion)
	q = append(binary.BigEndian.AppendUint16(q, 1), 0, 0, 0, 0, 0, 0)
	kind := uint16(typeNS)
	if name = strings.Trim(name, "."); name != "" {
		kind = typeA
		if v6 {
			kind = typeAAAA
		}
		for label := range strings.SplitSeq(name, ".") {
			q = append(append(q, byte(len(label))), label...)
		}
	}
	q = binary.BigEndian.AppendUint16(append(q, 0), kind)
	return binary.BigEndian.AppendUint16(q, classIN)
}

// addresses reads the addresses in an answer.
func addresses(b []byte) (out []netip.Addr, err error) {
	const header, code = 12, 0x000F
	if len(b) < header || binary.BigEndian.Uint16(b) != questionID {
		return nil, errors.New("what comes back is no answer")
	}
	if r := binary.BigEndian.Uint16(b[2:]) & code; r != 0 {
		return nil, Refused(r)
	}
	records := int(binary.BigEndian.Uint16(b[6:]))
	at := skipName(b, header) + 4 // the question
	for ; records > 0; records-- {
		at = skipName(b, at)
		if at+10 > len(b) {
			break
		}
		kind, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+8:]))
		at += 10
		if ip, ok := netip.AddrFromSlice(b[min(at, len(b)):min(at+size, len(b))]); ok && (kind == typeA || kind == typeAAAA) {
			out = append(out, ip)
		}
		at += size
	}
	return out, nil
}

// skipName returns what comes after a name: labels, ended by an empty one or by a pointer.
func skipName(b []byte, at int) int {
	for at < len(b) {
		switch n := int(b[at]); {
		case n == 0:
			return at + 1
		case n >= 0xC0:
			return at + 2
		default:
			at += n + 1
		}
	}
	return at
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
