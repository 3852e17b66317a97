package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/acme"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Times for gateways to serve a challenge.
const (
	ownPatience   = 20 * time.Second // the gateway of this server: without it nothing is asked
	otherPatience = 8 * time.Second  // those of other servers, which may be cut off
	probeTimeout  = 2 * time.Second
	probePause    = 50 * time.Millisecond
)

// probes asks gateways for challenges, as an ACME server does.
type probes struct {
	client *http.Client
	self   string        // the name of this server's node
	port   string        // for HTTP-01
	secure string        // for TLS-ALPN-01
	own    time.Duration // how long this server's gateway may take
	others time.Duration
}

func newProbes(self string) probes {
	return probes{self: self, port: "80", secure: "443", own: ownPatience, others: otherPatience, client: &http.Client{
		Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// addresses returns the address of this server, and those of others that are ready, by node.
func (p probes) addresses(nodes []*corev1.Node) (own string, others map[string]string, err error) {
	others = map[string]string{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			switch {
			case a.Type != corev1.NodeInternalIP:
			case n.Name == p.self && own == "":
				own = a.Address
			case n.Name != p.self && others[n.Name] == "" && kube.NodeReadiness(n) == corev1.ConditionTrue:
				others[n.Name] = a.Address
			}
		}
	}
	if own == "" {
		return "", nil, fmt.Errorf("the Node %s of this server has no address", p.self)
	}
	return own, others, nil
}

// alternative returns whether to take TLS-ALPN-01: what is preferred, unless only the port for the other kind is open here. It is an error if neither
// is: then nothing need be asked for any host.
func (p probes) alternative(ctx context.Context, nodes []*corev1.Node, preferred bool) (bool, error) {
	own, _, err := p.addresses(nodes)
	if err != nil {
		return false, err
	}
	for began := time.Now(); ; {
		tls, err := p.open(ctx, own, preferred)
		if err == nil {
			return tls, nil
		}
		if time.Since(began) > p.own {
			return false, fmt.Errorf("the gateway of server %s does not answer ACME servers on port %s or %s: %w", p.self, p.port, p.secure, err)
		}
		if err := lifecycle.Sleep(ctx, probePause); err != nil {
			return false, err
		}
	}
}

// open returns which kind of challenge has its port open at an address: the preferred one if both have.
func (p probes) open(ctx context.Context, address string, preferred bool) (alternative bool, err error) {
	dialer := net.Dialer{Timeout: probeTimeout}
	for _, tls := range []bool{preferred, !preferred} {
		conn, dialErr := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, p.portOf(acme.Challenge{TLS: tls})))
		if dialErr == nil {
			return tls, conn.Close()
		}
		err = dialErr
	}
	return false, err
}

// unansweredError says that the gateway of this server is there and does not have the answers of an order, whose hosts may lead elsewhere.
type unansweredError string

func (e unansweredError) Error() string { return string(e) }

// await returns when the gateways of all servers answer, or only this server's when the others have had their time.
func (p probes) await(ctx context.Context, nodes []*corev1.Node, all []acme.Challenge) error {
	own, waiting, err := p.addresses(nodes)
	if err != nil {
		return err
	}
	began := time.Now()
	for {
		err := p.ask(ctx, own, all)
		for name, address := range waiting {
			if otherErr := p.ask(ctx, address, all); otherErr == nil {
				delete(waiting, name)
			} else if err == nil && time.Since(began) > p.others {
				logrus.WithField("component", "gateway-acme").WithError(otherErr).Warnf("the gateway of %s does not answer ACME servers: going on without it", name)
				delete(waiting, name)
			}
		}
		switch {
		case err == nil && len(waiting) == 0:
			return nil
		case err != nil && time.Since(began) > p.own:
			return unansweredError(fmt.Sprintf("the gateway of server %s does not answer ACME servers on port %s: %v", p.self, p.portOf(all[0]), err))
		}
		if err := lifecycle.Sleep(ctx, probePause); err != nil {
			return err
		}
	}
}

func (p probes) portOf(c acme.Challenge) string {
	if c.TLS {
		return p.secure
	}
	return p.port
}

// ask returns an error unless a gateway has the answers.
func (p probes) ask(ctx context.Context, address string, all []acme.Challenge) error {
	for _, c := range all {
		of := p.askHTTP
		if c.TLS {
			of = p.askTLS
		}
		if err := of(ctx, net.JoinHostPort(address, p.portOf(c)), c); err != nil {
			return err
		}
	}
	return nil
}

// errOther is the error of a gateway that does not know a challenge yet.
var errOther = errors.New("it has another answer")

func (p probes) askHTTP(ctx context.Context, at string, c acme.Challenge) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+gateway.ChallengePath+c.Token, nil)
	if err != nil {
		return err
	}
	request.Host = c.Host
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(len(c.Answer))+1))
	if err == nil && (answer.StatusCode != http.StatusOK || string(body) != c.Answer) {
		err = errOther
	}
	return err
}

// challengeExtension is that of certificates that answer a challenge of TLS-ALPN-01 (RFC 8737, section 6.1).
var challengeExtension = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}

func (p probes) askTLS(ctx context.Context, at string, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// What is verified is the extension, as an ACME server does it.
	dialer := tls.Dialer{Config: &tls.Config{ServerName: c.Host, NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	sum := sha256.Sum256([]byte(c.Answer))
	value, err := asn1.Marshal(sum[:])
	if err != nil {
		return err
	}
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	if !slices.ContainsFunc(leaf.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(challengeExtension) && bytes.Equal(e.Value, value) }) {
		return errOther
	}
	return nil
}
