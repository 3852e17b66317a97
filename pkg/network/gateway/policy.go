package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Policy is what a route asks for that the Gateway API has no field for. Its limits count the requests of all routes that name it together.
//
// A request passes, in this order: Clients, then Redirect, then Limits; a preflight request that CORS answers ends here; then Users, then MaxBody.
type Policy struct {
	Clients *Clients   `json:"clients,omitempty"`
	Users   *BasicAuth `json:"users,omitempty"`
	// Redirect answers each request.
	Redirect *PolicyRedirect `json:"redirect,omitempty"`
	Limits   *Limits         `json:"limits,omitempty"`
	// MaxBody bounds the body of a request in bytes. Zero means no bound. A longer one is answered with 413.
	MaxBody int64 `json:"maxBody,omitempty"`
	// Stall bounds the time in which a backend sends nothing and takes nothing, before and during its answer. The answer is 504 if none has begun.
	// Upgraded connections have no such bound.
	Stall    time.Duration `json:"stall,omitempty"`
	Affinity *Affinity     `json:"affinity,omitempty"`
	Errors   *ErrorPages   `json:"errors,omitempty"`
}

// Clients are networks of clients. The client is the peer of the connection, or the one that the PROXY protocol names; X-Forwarded-For is not
// read. Others are answered with 403. An IPv4 address is never in the form of an IPv6 one.
type Clients struct {
	Allow []netip.Prefix `json:"allow,omitempty"` // empty means all
	Deny  []netip.Prefix `json:"deny,omitempty"`  // wins over Allow
}

// Admits reports whether a client is let in. One without an address is not, unless there are no rules.
func (c *Clients) Admits(client netip.Addr) bool {
	return c == nil || client.IsValid() && !Within(c.Deny, client) && (len(c.Allow) == 0 || Within(c.Allow, client))
}

// Within reports whether a client is in one of some networks.
func Within(networks []netip.Prefix, client netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(client) })
}

// Client returns the address of a client as networks have it.
func Client(at netip.AddrPort) netip.Addr { return at.Addr().Unmap().WithZone("") }

// Close takes the backends of a stream for which a policy cannot hold, because it needs to see requests, and reports whether it does.
func (s *Stream) Close(p Policy) bool {
	if p.Users == nil && p.Limits == nil {
		return false
	}
	s.Backends = nil
	return true
}

// Network returns what counts as one client: whoever has an IPv6 address has 2^64 of them.
func Network(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	p, _ := client.Prefix(bits)
	return p
}

// BasicAuth lets in users with a password (RFC 7617). Others are answered with 401.
type BasicAuth struct {
	Realm string `json:"realm"`
	// Hashes are those of the users' passwords: bcrypt ($2y$, $2a$, $2b$), Apache's MD5 ($apr1$), {SHA} or {SSHA}.
	Hashes map[string]string `json:"hashes"`
}

// PolicyRedirect answers a request with a URL, in which the variables of Variables are replaced.
type PolicyRedirect struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
}

// Limits bound what one client, an IPv4 address or an IPv6 network of 64 bits, may do on one node. What is above is answered with 429.
type Limits struct {
	Rates []Rate `json:"rates,omitempty"`
	// Concurrent bounds the requests that are served at the same time. Zero means no bound.
	Concurrent int            `json:"concurrent,omitempty"`
	Except     []netip.Prefix `json:"except,omitempty"` // clients without limits
}

// Rate is a number of requests in a time. Burst further ones may come before their time.
type Rate struct {
	Requests int           `json:"requests"`
	Per      time.Duration `json:"per"`
	Burst    int           `json:"burst,omitempty"`
}

// Affinity sends requests of the same client to the same endpoint, as long as that is ready. Of several backends it chooses the same one too.
type Affinity struct {
	Cookie *Cookie `json:"cookie,omitempty"`
	// By is a text with variables of Variables: requests for which it is the same go to the same endpoint. Without a Cookie only.
	By string `json:"by,omitempty"`
}

// Cookie is the one that affinity sets. Its value is a random number, which says nothing about endpoints.
type Cookie struct {
	Name     string        `json:"name"`
	Path     string        `json:"path"`
	Domain   string        `json:"domain,omitempty"`
	MaxAge   time.Duration `json:"maxAge,omitempty"` // zero: until the browser ends
	SameSite string        `json:"sameSite,omitempty"`
	Secure   bool          `json:"secure,omitempty"` // also in answers without TLS
}

// ErrorPages are answers of another backend in place of a backend's own.
type ErrorPages struct {
	// Codes are those of the answers that are replaced.
	Codes   []int   `json:"codes,omitempty"`
	Backend Backend `json:"backend"`
	// Headers say which route it was: X-Namespace and others.
	Headers []Header `json:"headers,omitempty"`
}

// Variables are what texts of policies may have, as nginx calls them; also $http_NAME, $cookie_NAME and $arg_NAME, for a header, a cookie and a
// query parameter.
func Variables() []string {
	return []string{"request_uri", "uri", "args", "is_args", "host", "http_host", "scheme", "remote_addr", "binary_remote_addr", "request_method"}
}

// CheckVariables returns why a text cannot be used, nil if it only has variables that there are.
func CheckVariables(text string) (err error) {
	os.Expand(text, func(name string) string {
		prefixed := func(prefix string) bool { return len(name) > len(prefix) && strings.HasPrefix(name, prefix) }
		if !slices.Contains(Variables(), name) && !prefixed("http_") && !prefixed("cookie_") && !prefixed("arg_") {
			err = fmt.Errorf("%q has $%s: there are only $%s, $http_NAME, $cookie_NAME and $arg_NAME", text, name, strings.Join(Variables(), ", $"))
		}
		return ""
	})
	return err
}
