package registries

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// TokenServer issues the tokens that a registry requires, like those of the big registries: to users with a password,
// and to clients with a refresh token. It grants all requested scopes except the refused ones.
type TokenServer struct {
	URL   string
	Users map[string]string
	// Refresh is the identity token that is accepted instead of a password; there is none if it is empty.
	Refresh string
	// Refused are repositories for which the whole request is refused.
	Refused []string

	signs *Authority
	mu    sync.Mutex
	asked []string
}

// service is the registry's name at the token server.
const service = "registry.test"

// StartTokens runs the server on the host until the test ends, and sets its URL. Its fields must not change afterwards.
func StartTokens(t testing.TB, h *hosts.Host, port int, s *TokenServer) *TokenServer {
	t.Helper()
	s.signs = NewAuthority(t, "tokens")
	address := net.JoinHostPort(h.IP.String(), fmt.Sprint(port))
	s.URL = "http://" + address + "/token"
	listener := h.Listen("tcp", address)
	web := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	return s
}

// Asked are the scopes of all requests so far, each request's joined by spaces, with the user.
func (s *TokenServer) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// config is the part of a registry's configuration that names the server.
func (s *TokenServer) config(r *Registry) map[string]any {
	return map[string]any{"realm": s.URL, "service": service, "issuer": "tokens", "rootcertbundle": r.write("tokens.crt", s.signs.PEM)}
}

// serve answers GET with basic auth and POST as OAuth does.
func (s *TokenServer) serve(w http.ResponseWriter, req *http.Request) {
	_ = req.ParseForm()
	user, password, _ := req.BasicAuth()
	if req.Method == http.MethodPost {
		user, password = req.PostForm.Get("username"), req.PostForm.Get("password")
	}
	if refresh := req.PostForm.Get("refresh_token"); refresh != "" && refresh == s.Refresh {
		user = "refresh"
	} else if want, known := s.Users[user]; !known || want != password {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	scopes := strings.Fields(strings.Join(req.Form["scope"], " "))
	s.mu.Lock()
	s.asked = append(s.asked, user+": "+strings.Join(scopes, " "))
	s.mu.Unlock()
	type grant struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	}
	access := []grant{}
	for _, scope := range scopes {
		kind, rest, _ := strings.Cut(scope, ":")
		at := strings.LastIndex(rest, ":")
		for _, refused := range s.Refused {
			if at < 0 || rest[:at] == refused {
				http.Error(w, "no such repository", http.StatusForbidden)
				return
			}
		}
		access = append(access, grant{kind, rest[:at], strings.Split(rest[at+1:], ",")})
	}
	now := time.Now().Unix()
	token := s.sign(map[string]any{"iss": "tokens", "sub": user, "aud": service, "iat": now, "nbf": now - 10, "exp": now + 300,
		"jti": fmt.Sprint(time.Now().UnixNano()), "access": access})
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// sign makes a signed JSON web token.
func (s *TokenServer) sign(claims map[string]any) string {
	block, _ := pem.Decode(s.signs.PEM)
	header, _ := json.Marshal(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(block.Bytes)}})
	payload, _ := json.Marshal(claims)
	text := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(text))
	a, b, err := ecdsa.Sign(rand.Reader, s.signs.key, sum[:])
	if err != nil {
		return ""
	}
	const half = 32
	signature := make([]byte, 2*half)
	a.FillBytes(signature[:half])
	b.FillBytes(signature[half:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
