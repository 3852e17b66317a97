package gateway

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// TestIssuerWithoutGateway: nothing is ordered while the gateway of this server does not answer on any port; while it does on port 443 only, by TLS.
func TestIssuerWithoutGateway(t *testing.T) {
	c := newCertificates(t)
	w, web := c.leader(), want("shop", "web", "a.test")
	secure := w.probes.secure
	w.probes.port, w.probes.secure, w.probes.own = "1", "2", 100*time.Millisecond
	if wait := time.Until(c.run(t, w, web)); wait < 30*time.Second || wait > 2*time.Minute {
		t.Errorf("it looks again after %s", wait)
	}
	if events := c.events(t, web); !strings.Contains(events, "the gateway of server server does not answer ACME servers on port 1 or 2") {
		t.Errorf("the Events are %s", events)
	}
	if n := c.server.Count("Added order"); n != 0 {
		t.Errorf("%d orders", n)
	}
	w.ledger.book.Server.Until, w.probes.secure = time.Time{}, secure
	c.run(t, w, web)
	c.stored(t, web)
	if n := c.server.Count("Added order"); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// TestHostThatLeadsElsewhere: a host for which the gateway does not have the answers, such as one whose TLS a backend terminates, keeps no other waiting.
func TestHostThatLeadsElsewhere(t *testing.T) {
	c := newCertificates(t)
	w, other, web := c.leader(), want("evil", "other", "b.test"), want("shop", "web", "a.test")
	elsewhere := httptest.NewTLSServer(http.NotFoundHandler())
	defer elsewhere.Close()
	w.probes.secure, w.probes.own = strconv.Itoa(elsewhere.Listener.Addr().(*net.TCPAddr).Port), 100*time.Millisecond
	if err := w.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ledger.book.Refused(w.candidates([]translate.Wanted{other})[0], "no", false, time.Now()) // next it is tried by TLS
	wait := w.ledger.book.Hosts["b.test"]
	wait.Until = time.Now().Add(-time.Second)
	w.ledger.book.Hosts["b.test"] = wait
	c.run(t, w, other)
	if events := c.events(t, other); !strings.Contains(events, "no certificate for b.test: the gateway of server server does not answer ACME servers on port "+w.probes.secure) {
		t.Errorf("the Events are %s", events)
	}
	if w.ledger.book.Server.Failures != 0 || w.ledger.book.Hosts["b.test"].Failures != 2 {
		t.Errorf("%+v", w.ledger.book)
	}
	c.run(t, w, other, web)
	c.stored(t, web)
}
