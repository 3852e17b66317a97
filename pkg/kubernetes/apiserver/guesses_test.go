package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

const goodToken, badToken = "abcdef.0123456789abcdef", "abcdef.0123456789abcdee"

// oneToken knows one token.
type oneToken struct{ checked *int }

func (o oneToken) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if o.checked != nil {
		*o.checked++
	}
	if r.Header.Get("Authorization") == "Bearer "+goodToken {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "system:bootstrap:abcdef"}}, true, nil
	}
	return nil, false, fmt.Errorf("invalid bearer token")
}

func offer(from, token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/coracle/v1/join/agent", nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func newGuarded(checked *int) guarded {
	return guarded{oneToken{checked}, newGuesses(), true}
}

// TestGuesser: a source gets fewer than five answers to wrong tokens a second, and right tokens of it are answered at once.
func TestGuesser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newGuarded(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var mu sync.Mutex
		answered := 0
		for i := range 20 { // connections
			go func() {
				for ctx.Err() == nil {
					if _, ok, err := a.AuthenticateRequest(offer(fmt.Sprintf("192.0.2.1:%d", 1000+i), badToken).WithContext(ctx)); ok || err != nil {
						t.Errorf("%t %v", ok, err)
					}
					mu.Lock()
					if ctx.Err() == nil {
						answered++
					}
					mu.Unlock()
				}
			}()
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		for range 20 {
			if response, ok, err := a.AuthenticateRequest(offer("192.0.2.1:1", goodToken)); !ok || err != nil || response.User.GetName() == "" {
				t.Errorf("a right token: %t %v", ok, err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("right tokens wait for %s", took)
		}
		<-ctx.Done()
		synctest.Wait()
		if answered < 60 || answered >= 5*20 {
			t.Errorf("%d guesses were answered in 20 s", answered)
		}
	})
}

// laterToken knows the token from a time on.
type laterToken struct{ from time.Time }

func (l laterToken) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if time.Now().Before(l.from) {
		return nil, false, fmt.Errorf("invalid bearer token")
	}
	return oneToken{}.AuthenticateRequest(r)
}

// TestNewToken: a token that was made a moment ago, and is not in the cache of the server, is no guess.
func TestNewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := guarded{laterToken{time.Now().Add(200 * time.Millisecond)}, newGuesses(), true}
		if _, ok, err := a.AuthenticateRequest(offer("192.0.2.1:1000", goodToken)); !ok || err != nil {
			t.Errorf("%t %v", ok, err)
		}
		if wait, ok := a.guesses.enter(sourceOf("192.0.2.1:1000")); !ok || wait > 0 {
			t.Errorf("it counts as a guess: %s", wait)
		}
		if a.guesses.reporting {
			t.Error("it is reported as a guess")
		}
	})
}

// TestImpatientGuesser: the rate holds for one who takes a missing answer for one, too.
func TestImpatientGuesser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked := 0
		a := newGuarded(&checked)
		gate := a.guesses.gate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _, _ = a.AuthenticateRequest(r) }))
		refused := 0
		for range 10000 { // in 10 s
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			answer := httptest.NewRecorder()
			gate.ServeHTTP(answer, offer("[2001:db8::1]:1000", badToken).WithContext(ctx))
			<-ctx.Done()
			cancel()
			if answer.Code == http.StatusTooManyRequests && answer.Header().Get("Retry-After") != "" {
				refused++
			}
		}
		if limit := int(guessQueue/guessInterval) + 10*4 + 2; checked > limit || refused != 10000-checked {
			t.Errorf("%d guesses were checked and %d refused, want %d at most", checked, refused, limit)
		}
		// Another source is not concerned, and this one only for seconds.
		if wait, ok := a.guesses.enter(sourceOf("[2001:db8:0:1::1]:1")); !ok || wait > 0 {
			t.Errorf("a neighbour waits for %s (%t)", wait, ok)
		}
		time.Sleep(time.Second)
		if _, ok, err := a.AuthenticateRequest(offer("[2001:db8::2]:1000", goodToken)); !ok || err != nil {
			t.Errorf("a right token a second later: %t %v", ok, err)
		}
	})
}

func TestManySources(t *testing.T) {
	g := newGuesses()
	for i := range 3 * guessSources {
		g.enter(sourceOf(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff)))
	}
	if len(g.due) > guessSources+1 {
		t.Errorf("%d sources are kept", len(g.due))
	}
}

func TestOffersToken(t *testing.T) {
	for header, want := range map[string]bool{
		"Authorization: Bearer " + goodToken:                                       true,
		"Authorization:   bearer " + goodToken:                                     true,
		"Authorization: Bearer " + goodToken + " x":                                true,
		"Authorization: Bearer eyJhbGciOiJ.abcdef.0123456789abcdef":                false,
		"Authorization: Bearer 0123456789abcdef":                                   false,
		"Authorization: Basic " + goodToken:                                        false,
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YWJj, v4.x": true,
		"Sec-WebSocket-Protocol: v4.channel.k8s.io":                                false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if offersToken(r) != want {
			t.Errorf("%s: want %t", header, want)
		}
	}
}

// TestGuessesLog: there is one line at once, and then one a minute.
func TestGuessesLog(t *testing.T) {
	hook := logtest.NewGlobal()
	defer logrus.StandardLogger().ReplaceHooks(logrus.LevelHooks{})
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		for range 1119 {
			g.note(sourceOf("192.0.2.1:1"))
		}
		time.Sleep(guessReport + time.Second)
		g.note(sourceOf("192.0.2.2:1"))
		time.Sleep(3 * guessReport)
		synctest.Wait()
	})
	var lines []string
	for _, e := range hook.AllEntries() {
		lines = append(lines, fmt.Sprintf("%s %s", e.Data["from"], e.Message))
	}
	want := []string{
		"192.0.2.1 a join token was refused, because it is wrong, has expired or was deleted",
		"192.0.2.1 1118 join tokens were refused in the last minute; the last was from this address",
		"192.0.2.2 1 join tokens were refused in the last minute; the last was from this address",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(lines, "\n"))
	}
}
