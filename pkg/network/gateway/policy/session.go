package policy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Session returns the number that decides which endpoint a request goes to, and the cookie that the answer has to set, if the client has none.
func Session(a *gateway.Affinity, req *http.Request) (number uint64, set *http.Cookie) {
	if a.Cookie == nil {
		return numberOf(Expand(a.By, req)), nil
	}
	if c, err := req.Cookie(a.Cookie.Name); err == nil && len(c.Value) == base64.RawURLEncoding.EncodedLen(idLength) {
		return numberOf(c.Value), nil
	}
	id := make([]byte, idLength)
	_, _ = rand.Read(id) // it does not fail
	c := a.Cookie
	set = &http.Cookie{
		Name: c.Name, Value: base64.RawURLEncoding.EncodeToString(id), Path: c.Path, Domain: c.Domain, MaxAge: int(c.MaxAge.Seconds()),
		HttpOnly: true, Secure: c.Secure || req.TLS != nil,
		SameSite: map[string]http.SameSite{"lax": http.SameSiteLaxMode, "strict": http.SameSiteStrictMode, "none": http.SameSiteNoneMode}[strings.ToLower(c.SameSite)],
	}
	return numberOf(set.Value), set
}

// idLength is the length in bytes of the random number in a cookie.
const idLength = 16

// numberOf is a hash, so that a client that makes up its cookie does not know which endpoint it leads to. It is not 0.
func numberOf(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:]) | 1
}

// Expand replaces the variables in a text.
func Expand(text string, req *http.Request) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "request_uri":
			return req.URL.RequestURI()
		case "uri":
			return (&url.URL{Path: req.URL.Path}).EscapedPath()
		case "args":
			return req.URL.RawQuery
		case "is_args":
			return strings.Repeat("?", min(1, len(req.URL.RawQuery)))
		case "host":
			return strings.ToLower(hostOf(req.Host))
		case "http_host":
			return req.Host
		case "scheme":
			return Scheme(req)
		case "remote_addr", "binary_remote_addr":
			return Client(req).String()
		case "request_method":
			return req.Method
		}
		kind, of, _ := strings.Cut(name, "_")
		switch kind {
		case "http":
			return req.Header.Get(strings.ReplaceAll(of, "_", "-"))
		case "cookie":
			if c, err := req.Cookie(of); err == nil {
				return c.Value
			}
		case "arg":
			return req.URL.Query().Get(of)
		}
		return ""
	})
}

// hostOf returns a host without its port.
func hostOf(host string) string { return (&url.URL{Host: host}).Hostname() }
