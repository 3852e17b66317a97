package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewSecret returns a secret that nobody can guess.
func NewSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// session knows the browsers that showed the secret.
type session struct {
	secret, key string
	secure      bool
}

func newSession(secret string, secure bool) *session {
	return &session{secret: secret, key: NewSecret(), secure: secure}
}

// cookie is a browser's. Browsers send it to every port of the host, which may be a tenant's: from another address than the browser's it lets nobody in.
// A name on loopback has one port only, and browsers reach it from two addresses.
func (s *session) cookie(r *http.Request) string {
	from := ""
	if s.secure {
		from, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	mac := hmac.New(sha256.New, []byte(s.key))
	mac.Write([]byte(from))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (s *session) name() string {
	if s.secure {
		return "__Host-coracle" // browsers take it only over TLS, and from no other host
	}
	return "coracle"
}

// begin gives a browser the cookie for the secret.
func (s *session) begin(w http.ResponseWriter, r *http.Request) {
	var shown struct {
		Secret string `json:"secret"`
	}
	err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&shown)
	if err != nil || !same(shown.Secret, s.secret) {
		refuse(w, http.StatusUnauthorized, "This is not the address that 'coracle dashboard' printed.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.name(), Value: s.cookie(r), Path: "/", HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode})
	w.WriteHeader(http.StatusNoContent)
}

// required lets only browsers with the cookie in. They may take their time to read, as logs and watches last.
func (s *session) required(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(s.name())
		if err != nil || !same(cookie.Value, s.cookie(r)) {
			refuse(w, http.StatusUnauthorized, "Open the address that 'coracle dashboard' printed.")
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // only tests have connections without
		next.ServeHTTP(w, r)
	})
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// guard is what every request passes: it must be meant for this server, and come from its own page.
func (s *Server) guard(secure bool, next http.Handler) http.Handler {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			header.Set(name, value)
		}
		if !s.knows(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "This is not a name of this server: open the address that 'coracle dashboard' printed.")
			return
		}
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		read := r.Method == http.MethodGet && r.Header.Get("Upgrade") == ""
		ours := origin == scheme+r.Host || origin == "" && read
		navigation := read && r.Header.Get("Sec-Fetch-Mode") == "navigate"
		if !ours || !navigation && site != "" && site != "same-origin" && site != "none" {
			refuse(w, http.StatusForbidden, "Only the dashboard's own page may do this.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		if r.ContentLength != 0 { // those that become WebSockets have none
			r.Body = hurry(w, r.Body)
		}
		next.ServeHTTP(w, r)
	})
}

// bodyTime is how long the body of a request may take to arrive.
var bodyTime = 30 * time.Second

// body is the body of a request that has to arrive in time.
type body struct {
	io.ReadCloser
	arrived func()
}

// hurry returns a body that fails if it does not arrive in time. The answer may take longer, so the deadline ends with the body.
func hurry(w http.ResponseWriter, b io.ReadCloser) io.ReadCloser {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTime)) // only tests have connections without
	return body{b, func() { _ = c.SetReadDeadline(time.Time{}) }}
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.arrived()
	}
	return n, err
}

// knows reports whether a host of a request is one of the server's. A name that someone else's DNS resolves to this machine is not.
func (s *Server) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && s.IP {
		return true
	}
	return slices.ContainsFunc(s.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// refuse answers as the API server does, so that the page has one way to show errors.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: message, Code: int32(code), Reason: metav1.StatusReasonUnknown,
	})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the browser is gone if it fails
}
