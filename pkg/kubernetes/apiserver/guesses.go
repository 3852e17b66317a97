package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// Limits of wrong bootstrap tokens. Tokens that people chose may be guessable, and upstream answers a thousand guesses a second.
const (
	guessInterval = 250 * time.Millisecond // between the answers to one source
	guessQueue    = 10 * time.Second       // of a source; while it is full, not even right tokens of the source are checked
	guessSources  = 4096                   // that are told apart; others share a queue
	guessReport   = time.Minute            // between log lines
)

// guesses limits how fast a source learns that bootstrap tokens are wrong: an IPv4 address, or an IPv6 network of 64 bits. The answers to wrong tokens
// wait in a queue, and those to right ones do not, so that machines behind one NAT join at once, also beside one that guesses. A guesser that
// does not wait for its answers fills the queue. Then the source's tokens are not checked, as otherwise a missing answer would
// be one; joining machines try again.
type guesses struct {
	mu  sync.Mutex
	due map[netip.Prefix]time.Time // when the next wrong token of a source is answered

	refused   int // since the last log line
	last      netip.Prefix
	reporting bool
}

func newGuesses() *guesses { return &guesses{due: map[netip.Prefix]time.Time{}} }

// add makes the limit part of a server, the outermost of the chain.
func (g *guesses) add(generic *genericserver.Config) {
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericserver.Config) http.Handler {
		// Around what upstream adds for the server's own token, whose errors the handler would log for each request.
		c.Authentication.Authenticator = guarded{c.Authentication.Authenticator, g, true}
		return g.gate(build(handler, c))
	}
}

var errManyGuesses = errors.New("too many wrong bootstrap tokens came from this address: try again later")

// gate refuses the tokens of a source whose queue is full. An authenticator cannot answer that the request may be repeated.
func (g *guesses) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if source := sourceOf(r.RemoteAddr); offersToken(r) && g.full(source) {
			g.note(source)
			w.Header().Set("Retry-After", "1")
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(errManyGuesses.Error(), 1), legacyscheme.Codecs, corev1.SchemeGroupVersion, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded is an authenticator with a limit of guesses.
type guarded struct {
	authenticator.Request
	guesses *guesses
	remote  bool // it is for requests of clients, not for TokenReviews
}

// AuthenticateRequest delays the answer to a wrong token, and looks again before it. A TokenReview has no remote address: all of them are one source,
// as the kubelets, whose ports anybody can ask, send them.
func (a guarded) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if a.remote != (r.RemoteAddr != "") || !offersToken(r) {
		return a.Request.AuthenticateRequest(r)
	}
	source := sourceOf(r.RemoteAddr)
	wait, ok := a.guesses.enter(source)
	if !ok {
		a.guesses.note(source)
		return nil, false, errManyGuesses
	}
	response, ok, err := a.Request.AuthenticateRequest(r)
	if !ok && lifecycle.Sleep(r.Context(), max(wait, guessInterval)) == nil {
		// The authenticator reads its cache of Secrets, which does not have a token yet that was made a moment ago.
		response, ok, err = a.Request.AuthenticateRequest(r)
	}
	if ok {
		a.guesses.leave(source)
		return response, ok, err
	}
	a.guesses.note(source)
	if a.remote {
		err = nil // upstream's handler would log it for each request
	}
	return nil, false, err
}

var bootstrapBearer = regexp.MustCompile(`(?i)^\s*bearer\s+[a-z0-9]{6}\.[a-z0-9]{16}(\s|$)`)

// offersToken reports whether a request may have a bootstrap token: in its Authorization header, or, as browsers send tokens, among the protocols of a
// WebSocket.
func offersToken(r *http.Request) bool {
	for _, protocols := range r.Header["Sec-Websocket-Protocol"] {
		if strings.Contains(protocols, "base64url.bearer.authorization.k8s.io.") {
			return true
		}
	}
	return bootstrapBearer.MatchString(r.Header.Get("Authorization"))
}

// sourceOf returns the source of a remote address. The zero value is that of a request without one.
func sourceOf(remote string) netip.Prefix {
	at, _ := netip.ParseAddrPort(remote)
	return sockets.Source(at.Addr())
}

// full reports whether the queue of a source is full.
func (g *guesses) full(source netip.Prefix) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.due[g.known(source)]) > guessQueue
}

// enter takes a place in the queue of a source, before a token is checked. ok is false if the queue is full.
func (g *guesses) enter(source netip.Prefix) (wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	source = g.known(source)
	wait = max(0, time.Until(g.due[source]))
	if wait > guessQueue {
		return 0, false
	}
	g.due[source] = time.Now().Add(wait + guessInterval)
	return wait, true
}

// leave gives a place back: the token was right.
func (g *guesses) leave(source netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	source = g.known(source)
	g.due[source] = g.due[source].Add(-guessInterval)
}

// known returns the source as which another one counts: itself, unless there are too many. mu is held.
func (g *guesses) known(source netip.Prefix) netip.Prefix {
	if _, ok := g.due[source]; ok || len(g.due) < guessSources {
		return source
	}
	now := time.Now()
	for other, due := range g.due {
		if due.Before(now) {
			delete(g.due, other)
		}
	}
	if len(g.due) < guessSources {
		return source
	}
	return netip.Prefix{}
}

// note counts a refused token. The first is logged at once, and then there is a line a minute with the number of others.
func (g *guesses) note(source netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused++
	g.last = source
	if !g.reporting {
		g.reporting = true
		g.report("a join token was refused, because it is wrong, has expired or was deleted")
	}
}

// report logs a line and begins the next minute. mu is held.
func (g *guesses) report(line string) {
	from := g.last.Addr().String()
	if !g.last.IsValid() {
		from = "TokenReviews"
	}
	logrus.WithFields(logrus.Fields{"component": "join", "from": from}).Warn(line)
	g.refused = 0
	time.AfterFunc(guessReport, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.reporting = g.refused > 0; g.reporting {
			g.report(fmt.Sprintf("%d join tokens were refused in the last minute; the last was from this address", g.refused))
		}
	})
}
