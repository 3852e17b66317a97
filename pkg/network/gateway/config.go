package gateway

import (
	"fmt"
	"net/netip"
	"time"
)

// Config is what the gateway of a node serves. It contains the private keys of its certificates.
type Config struct {
	Listeners    []Listener    `json:"listeners,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Routes       []Route       `json:"routes,omitempty"`
	Streams      []Stream      `json:"streams,omitempty"`
	Challenges   []Challenge   `json:"challenges,omitempty"`
	// Policies are what Routes name.
	Policies map[string]Policy `json:"policies,omitempty"`
	// LogRequests says that each request is a line of the log.
	LogRequests bool `json:"logRequests,omitempty"`
	// HTTP3 are ports of HTTPS that are served with HTTP/3 too, unless a listener of UDP has them.
	HTTP3 []uint16 `json:"http3,omitempty"`
	// Proxies are the networks of balancers whose connections begin with a header of the PROXY protocol.
	Proxies []netip.Prefix `json:"proxies,omitempty"`
}

// Challenge is what an ACME server that validates a host gets, whatever routes there are: by HTTP-01 (RFC 8555, section 8.3) from listeners of HTTP,
// and by TLS-ALPN-01 (RFC 8737) from those of HTTPS.
type Challenge struct {
	Host   string `json:"host"`
	Token  string `json:"token"`  // the path is ChallengePath and this
	Answer string `json:"answer"` // the key authorization
}

// ChallengePath begins the paths of challenges.
const ChallengePath = "/.well-known/acme-challenge/"

// Listener accepts connections on a port. Of several listeners on the port the connection's address selects those that have it as their own, or
// those without addresses if none has it; then the host that a request or TLS handshake names selects the one with the most specific Host. Of
// equal ones, the first that has a route for the request serves it.
type Listener struct {
	Name string `json:"name"` // unique, the same as long as the listener exists
	// Addresses are addresses of this node on which the listener serves and others do not.
	Addresses []string `json:"addresses,omitempty"`
	Port      uint16   `json:"port"`
	Protocol  Protocol `json:"protocol"`
	// Host is a name, "*.NAME" for all names below it, or empty for all hosts.
	Host string `json:"host,omitempty"`
	// HostsApart says that a host that has routes is served by no others: those of a wildcard or of all hosts may be another namespace's, and so may
	// be other listeners of the port, however specific their Host. A listener of Passthrough has its Host so. What has no host, of a listener with
	// HostsApart, is not for hosts that routes of other listeners name. Without it a wildcard serves what the host's own routes do not match.
	HostsApart bool `json:"hostsApart,omitempty"`
	// Yields are hosts that a listener with HostsApart leaves to the others of its port, though a wildcard of it covers them.
	Yields []string `json:"yields,omitempty"`
	// Certificates are sources of certificates by the hosts that they are used for; those of "" are used for all hosts of the listener.
	Certificates map[string][]string `json:"certificates,omitempty"`
	// ClientAuthorities are certificates in PEM. If there are any, clients must have a certificate of one of them.
	ClientAuthorities string `json:"clientAuthorities,omitempty"`
	// AnyClient says that clients without a valid certificate are served too.
	AnyClient bool `json:"anyClient,omitempty"`
}

// Protocol is what a listener serves.
type Protocol string

// The protocols of listeners.
const (
	HTTP        Protocol = "HTTP"
	HTTPS       Protocol = "HTTPS"
	TLS         Protocol = "TLS"         // terminated here
	Passthrough Protocol = "Passthrough" // TLS that the backend terminates
	TCP         Protocol = "TCP"
	UDP         Protocol = "UDP"
)

// String returns the listener as it is named in messages: "port 443 (HTTPS)".
func (l Listener) String() string { return fmt.Sprintf("port %d (%s)", l.Port, l.Protocol) }

// Certificate is a certificate with its chain, and its private key, both in PEM.
type Certificate struct {
	Source string `json:"source"` // "Secret NAMESPACE/NAME", unique
	Chain  string `json:"chain"`
	Key    string `json:"key"`
}

// Route leads requests to backends. Of several routes of a listener that match a request the one with the most specific host serves it, then an
// exact path before a prefix before a regular expression, then the longest path, then one with a method, then the most headers, then the most query
// parameters, then the first: the order of the Gateway API (HTTPRouteRule.matches).
type Route struct {
	Listeners []string `json:"listeners"` // by name
	// Source is the object that it comes from: "KIND NAMESPACE/NAME".
	Source string `json:"source,omitempty"`
	// Host is a name, "*.NAME", or empty for all hosts. Below a wildcard the listener says how many labels: one with HostsApart, as for an
	// Ingress, any number otherwise.
	Host string `json:"host,omitempty"`
	Match
	Filters
	// Policy is a key of Policies. A route whose policy is missing is answered with 503.
	Policy string `json:"policy,omitempty"`
	// Timeout bounds a request, with all its attempts; zero means no bound. After it the answer is 504.
	Timeout time.Duration `json:"timeout,omitempty"`
	// BackendTimeout bounds each attempt.
	BackendTimeout time.Duration `json:"backendTimeout,omitempty"`
	Retry          *Retry        `json:"retry,omitempty"`
	// Backends get requests in proportion to their weights.
	Backends []Backend `json:"backends,omitempty"`
	// Unserved is the status of the answer to requests for which there is no backend, or which fall to one that cannot serve.
	Unserved int `json:"unserved,omitempty"`
}

// Match is what a request must be like.
type Match struct {
	Path    string   `json:"path"`
	Kind    PathKind `json:"kind,omitempty"`
	Method  string   `json:"method,omitempty"` // empty means any
	Headers []Value  `json:"headers,omitempty"`
	Query   []Value  `json:"query,omitempty"`
	// Length is that of an expression among others, the longest of which is tried first. Zero means that of Path.
	Length int `json:"length,omitempty"`
}

// PathKind is how a path is compared.
type PathKind string

// The kinds. With a prefix, /foo matches /foo and /foo/bar, not /foobar. A regular expression is RE2's and must match the whole path.
const (
	Prefix     PathKind = ""
	Exact      PathKind = "exact"
	Expression PathKind = "expression"
)

// Value is what a header or a query parameter must be: equal, or matched by a regular expression as a whole.
type Value struct {
	Name       string `json:"name"`
	Value      string `json:"value"`
	Expression bool   `json:"expression,omitempty"`
}

// Filters change a request on its way. With a Redirect there are no backends.
type Filters struct {
	RequestHeaders  *Headers  `json:"requestHeaders,omitempty"`
	ResponseHeaders *Headers  `json:"responseHeaders,omitempty"`
	Redirect        *Redirect `json:"redirect,omitempty"`
	Rewrite         *Rewrite  `json:"rewrite,omitempty"`
	Mirrors         []Mirror  `json:"mirrors,omitempty"`
	CORS            *CORS     `json:"cors,omitempty"`
}

// Headers are changes of headers, in the order of the fields.
type Headers struct {
	Set    []Header `json:"set,omitempty"`
	Add    []Header `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Header is a header with its value.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Redirect answers a request with another URL. What is empty stays as it is in the request.
type Redirect struct {
	Scheme string `json:"scheme,omitempty"`
	Host   string `json:"host,omitempty"`
	// Port is that of the new URL. Zero means the well-known one of Scheme if that is set, the listener's otherwise; the port that is usual for a
	// scheme is not written.
	Port   uint16       `json:"port,omitempty"`
	Path   *PathRewrite `json:"path,omitempty"`
	Status int          `json:"status"`
}

// Rewrite is how a backend sees a request.
type Rewrite struct {
	Host string       `json:"host,omitempty"`
	Path *PathRewrite `json:"path,omitempty"`
}

// PathRewrite replaces a path, or the prefix that the route has matched.
type PathRewrite struct {
	Prefix bool   `json:"prefix,omitempty"`
	Path   string `json:"path"`
	// Groups says that ${1}, ${2}, … in Path are what the groups of the route's expression have matched. $$ is a $.
	Groups bool `json:"groups,omitempty"`
}

// Mirror sends copies of requests to a backend, whose answers are dropped.
type Mirror struct {
	Backend Backend `json:"backend"`
	// Numerator of Denominator requests are mirrored; a Denominator of zero means all.
	Numerator   int `json:"numerator,omitempty"`
	Denominator int `json:"denominator,omitempty"`
}

// CORS says which other origins' pages may read answers: HTTPCORSFilter of the Gateway API.
type CORS struct {
	Origins       []string      `json:"origins,omitempty"` // each may have a * in its host, or be one
	Credentials   bool          `json:"credentials,omitempty"`
	Methods       []string      `json:"methods,omitempty"`
	Headers       []string      `json:"headers,omitempty"`
	ExposeHeaders []string      `json:"exposeHeaders,omitempty"`
	MaxAge        time.Duration `json:"maxAge,omitempty"`
}

// Retry sends a request again, to another endpoint if there is one, when the backend answers with one of Codes.
type Retry struct {
	Codes    []int         `json:"codes,omitempty"`
	Attempts int           `json:"attempts,omitempty"` // after the first one
	Backoff  time.Duration `json:"backoff,omitempty"`
	// Idempotent says that requests of methods that may do something twice are not sent again: POST, PATCH and others (RFC 9110, 9.2.2).
	Idempotent bool `json:"idempotent,omitempty"`
}

// Backend is where requests or connections go.
type Backend struct {
	// Endpoints is a key of Endpoints. Empty means that the backend cannot serve.
	Endpoints string          `json:"endpoints,omitempty"`
	Weight    int32           `json:"weight"` // zero: none
	Protocol  BackendProtocol `json:"protocol,omitempty"`
	TLS       *BackendTLS     `json:"tls,omitempty"` // with it, whatever Protocol says, TLS is spoken, with HTTP/2 inside if the Protocol is H2C
	// RequestHeaders and ResponseHeaders are changed after those of the route.
	RequestHeaders  *Headers `json:"requestHeaders,omitempty"`
	ResponseHeaders *Headers `json:"responseHeaders,omitempty"`
}

// BackendProtocol is how a backend is spoken to.
type BackendProtocol string

// The protocols of backends.
const (
	ToHTTP  BackendProtocol = ""      // HTTP/1.1
	ToH2C   BackendProtocol = "h2c"   // HTTP/2 without TLS, as for gRPC
	ToHTTPS BackendProtocol = "https" // HTTP/1.1 or 2 with TLS. Without a BackendTLS the certificate is not verified
)

// BackendTLS says how a backend's certificate is verified.
type BackendTLS struct {
	Host        string   `json:"host"`                  // that the handshake names, and that the certificate must have unless there are Names
	Names       []string `json:"names,omitempty"`       // DNS names, or URIs with a scheme, of which the certificate must have one
	Authorities string   `json:"authorities,omitempty"` // in PEM; empty means those of the system
	Certificate string   `json:"certificate,omitempty"` // source of the gateway's own certificate for it
}

// Stream leads connections, or datagrams of UDP, to backends. Of several streams of a listener that match, the one with the most specific host
// has them, then the first.
type Stream struct {
	Listeners []string `json:"listeners"`       // by name
	Hosts     []string `json:"hosts,omitempty"` // that TLS names; none means all
	// Source is the object that it comes from: "KIND NAMESPACE/NAME".
	Source string `json:"source,omitempty"`
	// Clients says who is served; nil means all. Connections of others are closed, and their datagrams dropped.
	Clients  *Clients  `json:"clients,omitempty"`
	Backends []Backend `json:"backends,omitempty"`
}
