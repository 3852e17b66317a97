package dataplane

import (
	"net/http"
	"strings"
)

// refused says why a request is not looked at; "" if it is. What others could read in another way than Go's server does is not forwarded. It applies
// to every version of HTTP: clients of HTTP/2 can send any text as path, and backends get what they ask for in HTTP/1.1.
func refused(req *http.Request) string {
	switch {
	case !targetsPath(req):
		return "the request's target must be a path: this is no proxy\n"
	case evasive(req.URL.Path):
		return "the path has a segment that some servers take for the directory above\n"
	case strings.ContainsAny(req.Host, "/\\@,? \t"):
		return "the host is none\n"
	case !oneHost(req):
		return "the request names two hosts\n"
	}
	return ""
}

// targetsPath reports whether a request asks for a path, or for OPTIONS of the whole server. An extended CONNECT, of a WebSocket in HTTP/2 or 3, has a path.
func targetsPath(req *http.Request) bool {
	protocol := req.Header.Get(":protocol") // in HTTP/2
	if req.ProtoMajor == 3 {
		protocol = req.Proto
	}
	if req.Method == http.MethodConnect && (req.ProtoMajor == 1 || protocol != "websocket") || req.URL.Opaque != "" {
		return false
	}
	return strings.HasPrefix(req.RequestURI, "/") || req.RequestURI == "*" && req.Method == http.MethodOptions
}

// evasive reports whether a path has . or .. in a form that path.Clean leaves: with parameters, which Java's servers drop, or between backslashes,
// which those of Windows take for slashes.
func evasive(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		for part := range strings.SplitSeq(segment, `\`) {
			name, _, _ := strings.Cut(part, ";")
			if (name == "." || name == "..") && name != segment {
				return true
			}
		}
	}
	return false
}

// oneHost reports whether a request names one host only. In HTTP/2 there can be a header besides the :authority.
func oneHost(req *http.Request) bool {
	hosts := req.Header["Host"]
	return len(hosts) == 0 || len(hosts) == 1 && strings.EqualFold(hosts[0], req.Host)
}

// ambiguous reports whether a proxy before this one may have taken something else for a request's body, so that what follows on the connection, on which
// there are several clients' requests, may be no request: Go's server reads the chunks, and ignores a length that the request has as well, without a trace.
// Proxies say that they are there, by a header that backends believe. Those that say nothing and take the length, against RFC 9112, are not known.
func ambiguous(req *http.Request) bool {
	if len(req.TransferEncoding) == 0 {
		return false
	}
	for name := range req.Header {
		if name == "Via" || believed(name) {
			return true
		}
	}
	return false
}

// tidy drops what of a request's headers is for no backend: the host, which the request has, and the upgrade to HTTP/2, after which a connection
// would go past the routes.
func tidy(h http.Header) {
	delete(h, "Host")
	delete(h, "Http2-Settings")
	for _, value := range h["Upgrade"] {
		for protocol := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(protocol), "h2c") {
				delete(h, "Upgrade")
			}
		}
	}
}
