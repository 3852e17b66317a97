package dataplane

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testListeners: listeners of one port have certificates, clients and routes of their own.
func testListeners(t *testing.T, s *served, config gateway.Config, port uint16) {
	server, clients, others := newAuthority(t, "server"), newAuthority(t, "clients"), newAuthority(t, "others")
	var key = gateway.Endpoints{"l": {backend(t, "l")}}
	config.Listeners = config.Listeners[:1:1]
	config.Routes = nil
	add := func(name, host string, change func(*gateway.Listener)) {
		own, _ := server.issue(t, "Secret l/"+name, name+".cert")
		config.Certificates = append(config.Certificates, own)
		l := gateway.Listener{Name: name, Host: host, Port: port, Protocol: gateway.HTTPS, Certificates: map[string][]string{"": {own.Source}}}
		if change != nil {
			change(&l)
		}
		config.Listeners = append(config.Listeners, l)
		r := route("", "/"+name, "l", gateway.ToHTTP)
		r.Listeners = []string{name}
		config.Routes = append(config.Routes, r)
	}
	add("all", "", nil)
	add("name", "name.test", nil)
	add("wild", "*.wild.test", nil)
	add("below", "below.wild.test", nil)
	add("wanting", "wanting.test", func(l *gateway.Listener) { l.ClientAuthorities = "text\n" + clients.pem() })
	add("other", "other.test", func(l *gateway.Listener) { l.ClientAuthorities = others.pem() })
	add("any", "any.test", func(l *gateway.Listener) { l.ClientAuthorities, l.AnyClient = clients.pem(), true })
	add("garbage", "garbage.test", func(l *gateway.Listener) { l.ClientAuthorities = "garbage" })
	add("own", "", func(l *gateway.Listener) { l.Addresses = []string{"127.0.0.2"} })
	add("own-name", "name.test", func(l *gateway.Listener) { l.Addresses = []string{"127.0.0.2"} })
	if applied := s.apply(t, config, key); len(applied.Certificates)+len(applied.Refused) != 0 {
		t.Errorf("%+v", applied)
	}
	_, mine := clients.issue(t, "me")
	_, foreign := others.issue(t, "they")
	for _, c := range []struct {
		address, name, host, path string
		client                    *tls.Certificate
		cert                      string
		status                    int // 0: the handshake fails
	}{
		{"127.0.0.1", "name.test", "name.test", "/name", nil, "name", 200},
		{"127.0.0.1", "NAME.test", "name.test", "/all", nil, "name", 404},
		{"127.0.0.1", "name.test", "x.wild.test", "/wild", nil, "name", 421},
		{"127.0.0.1", "name.test", "elsewhere.test", "/all", nil, "name", 421},
		{"127.0.0.1", "elsewhere.test", "another.test", "/all", nil, "all", 200},
		{"127.0.0.1", "elsewhere.test", "name.test", "/name", nil, "all", 421},
		{"127.0.0.1", "x.wild.test", "x.wild.test", "/wild", nil, "wild", 200},
		{"127.0.0.1", "x.y.wild.test", "z.wild.test", "/wild", nil, "wild", 200},
		{"127.0.0.1", "x.wild.test", "below.wild.test", "/below", nil, "wild", 421},
		{"127.0.0.1", "below.wild.test", "below.wild.test", "/below", nil, "below", 200},
		{"127.0.0.2", "name.test", "name.test", "/own-name", nil, "own-name", 200},
		{"127.0.0.2", "name.test", "name.test", "/name", nil, "own-name", 404},
		{"127.0.0.2", "below.wild.test", "below.wild.test", "/own", nil, "own", 200},
		{"127.0.0.2", "wanting.test", "wanting.test", "/wanting", nil, "own", 404},
		{"127.0.0.3", "x.wild.test", "x.wild.test", "/own", nil, "wild", 404},

		{"127.0.0.1", "wanting.test", "wanting.test", "/wanting", &mine, "wanting", 200},
		{"127.0.0.1", "wanting.test", "wanting.test", "/wanting", &foreign, "", 0},
		{"127.0.0.1", "wanting.test", "wanting.test", "/wanting", nil, "", 0},
		{"127.0.0.1", "name.test", "wanting.test", "/wanting", &mine, "name", 421},
		{"127.0.0.1", "any.test", "wanting.test", "/wanting", nil, "any", 421},
		{"127.0.0.1", "other.test", "wanting.test", "/wanting", &foreign, "other", 421},
		{"127.0.0.1", "", "wanting.test", "/wanting", nil, "all", 421},
		{"127.0.0.1", "any.test", "any.test", "/any", nil, "any", 200},
		{"127.0.0.1", "any.test", "any.test", "/any", &foreign, "any", 200},
		{"127.0.0.1", "garbage.test", "garbage.test", "/garbage", &mine, "", 0},
		{"127.0.0.1", "garbage.test", "garbage.test", "/garbage", nil, "", 0},
	} {
		config := &tls.Config{ServerName: c.name, InsecureSkipVerify: true}
		if c.client != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.client, nil }
		}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d%s", c.address, port, c.path), nil)
		request.Host = c.host
		answer, err := direct(config).Do(request)
		if err != nil {
			if c.status != 0 {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		answer.Body.Close()
		cert := answer.TLS.PeerCertificates[0].Subject.CommonName
		if answer.StatusCode != c.status || cert != "Secret l/"+c.cert || answer.ProtoMajor != 2 {
			t.Errorf("%s %s for %s: %d with the certificate of %q", c.name, c.path, c.host, answer.StatusCode, cert)
		}
	}
	testResumed(t, port, mine)
}

// testResumed: a session of one listener is none of another's, whose clients need other certificates.
func testResumed(t *testing.T, port uint16, mine tls.Certificate) {
	cache := tls.NewLRUClientSessionCache(8)
	dial := func(name string) (bool, error) {
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}, ClientSessionCache: sameSession{cache}}
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), config)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name[:len(name)-len(".test")], name)
		answer := make([]byte, len("HTTP/1.1 200"))
		if _, err := conn.Read(answer); err != nil {
			return false, err
		}
		if string(answer) != "HTTP/1.1 200" {
			return false, fmt.Errorf("%s", answer)
		}
		return conn.ConnectionState().DidResume, nil
	}
	for range 2 {
		if resumed, err := dial("wanting.test"); err != nil || resumed {
			t.Errorf("%v, %v", resumed, err)
		}
	}
	if _, err := dial("other.test"); err == nil {
		t.Error("a session with one authority's certificate serves for another's listener")
	}
}

// sameSession offers the last session whatever the host.
type sameSession struct{ tls.ClientSessionCache }

func (s sameSession) Get(string) (*tls.ClientSessionState, bool) { return s.ClientSessionCache.Get("") }

func (s sameSession) Put(_ string, state *tls.ClientSessionState) {
	s.ClientSessionCache.Put("", state)
}
