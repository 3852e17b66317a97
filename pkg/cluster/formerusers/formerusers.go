// Package formerusers remembers who still authenticates at this API server with a certificate of a former authority, or with a token that a former key has
// signed, while authorities are being changed.
package formerusers

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Lately is how long somebody is remembered who does not come again, in either way.
const Lately = 15 * time.Minute

// How many are remembered, how many of one name, and how many are listed: anyone with a former token can come with many programs.
const (
	most        = 500
	mostOfName  = 10
	mostListed  = 50
	programSize = 40 // bytes
)

// Users remembers them. The zero value remembers nobody until Load finds that there are former authorities or keys.
type Users struct {
	mu     sync.RWMutex
	issuer []byte // the name of the authority that signs, if there are former ones
	key    string // the ID of the key that signs tokens, if there are former ones
	seen   map[string]time.Time
	since  time.Time // when there were others before these
}

// Load reads which authority and which key are the present ones.
func (u *Users) Load(d paths.Dirs) {
	certs, keys := blocks(filepath.Join(d.PKI(), "ca.crt")), blocks(filepath.Join(d.PKI(), "sa.pub"))
	u.mu.Lock()
	defer u.mu.Unlock()
	issuer, key := u.issuer, u.key
	u.issuer, u.key = nil, ""
	if len(certs) > 1 {
		if cert, err := x509.ParseCertificate(certs[0]); err == nil {
			u.issuer = cert.RawSubject
		}
	}
	if len(keys) > 1 {
		sum := sha256.Sum256(keys[0])
		u.key = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if u.seen == nil || string(issuer) != string(u.issuer) || key != u.key {
		u.seen, u.since = map[string]time.Time{}, time.Now()
	}
}

func blocks(file string) (out [][]byte) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, block.Bytes)
	}
	return out
}

// Note is called before a request is authenticated, which removes its token, and returns what is called when it was authenticated as a user; nil if
// nobody is remembered.
func (u *Users) Note(r *http.Request) func(user.Info) {
	u.mu.RLock()
	issuer, key := u.issuer, u.key
	u.mu.RUnlock()
	if issuer == nil && key == "" {
		return nil
	}
	id := keyID(r)
	return func(who user.Info) { u.note(r, who, id, issuer, key) }
}

// note notes a request with a token that the key with an ID has signed, or with a certificate.
func (u *Users) note(r *http.Request, who user.Info, id string, issuer []byte, key string) {
	former, name := false, who.GetName()
	if id != "" {
		if key == "" || !strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
			return
		}
		former, name = id != key, name+holder(who)+": a token"
	} else if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if issuer == nil {
			return
		}
		former, name = string(r.TLS.PeerCertificates[0].RawIssuer) != string(issuer), name+": a certificate"
	} else {
		return
	}
	source, _, _ := net.SplitHostPort(r.RemoteAddr)
	name += ", from "
	full := name + program(r) + " at " + source
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.seen[full]
	switch {
	case !former:
		delete(u.seen, full)
	case known || len(u.seen) < most && u.count(name) < mostOfName:
		u.seen[full] = time.Now()
	}
}

// count returns how many of those that are remembered begin with a name.
func (u *Users) count(name string) (n int) {
	for full := range u.seen {
		if strings.HasPrefix(full, name) {
			n++
		}
	}
	return n
}

// program is what a client says that it is, as far as it can be shown.
func program(r *http.Request) string {
	name, _, _ := strings.Cut(r.UserAgent(), " ")
	name = name[:min(len(name), programSize)]
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, name)
}

// List returns those who came lately with what is former, and have not come with what is new, since a time.
func (u *Users) List() (users []string, since time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.seen, func(_ string, when time.Time) bool { return time.Since(when) > Lately })
	users = append([]string{}, slices.Sorted(maps.Keys(u.seen))...)
	if more := len(users) - mostListed; more > 0 {
		users = append(users[:mostListed], fmt.Sprintf("and %d more", more))
	}
	return users, u.since
}

// holder returns the pod that a token was made for, or the token's ID. A pod gets others; who has another token may not know of one that comes with it.
func holder(who user.Info) string {
	for _, key := range []string{serviceaccount.PodNameKey, user.CredentialIDKey} {
		if values := who.GetExtra()[key]; len(values) > 0 {
			return " (" + values[0] + ")"
		}
	}
	return ""
}

// keyID returns the ID of the key that has signed the request's token, "" if there is none. What reads the token is what the API server reads it with.
func keyID(r *http.Request) string {
	token := ""
	read := authenticator.TokenFunc(func(_ context.Context, found string) (*authenticator.Response, bool, error) {
		token = found
		return nil, false, nil
	})
	_, _, _ = union.New(bearertoken.New(read), websocket.NewProtocolAuthenticator(read)).AuthenticateRequest(r) // it lets nobody in
	head, _, signed := strings.Cut(token, ".")
	if !signed {
		return ""
	}
	var header struct {
		KeyID string `json:"kid"`
	}
	data, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil || json.Unmarshal(data, &header) != nil {
		return ""
	}
	return header.KeyID
}
