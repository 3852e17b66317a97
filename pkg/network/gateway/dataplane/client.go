package dataplane

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
)

// introduce tells a backend who the client is and what it has asked for.
func introduce(req *http.Request, port uint16) {
	client := policy.Client(req).String()
	req.Header["X-Forwarded-For"], req.Header["X-Real-Ip"] = []string{client}, []string{client}
	req.Header["X-Forwarded-Host"] = []string{req.Host}
	req.Header["X-Forwarded-Port"] = []string{strconv.Itoa(int(port))}
	req.Header["X-Forwarded-Proto"] = []string{policy.Scheme(req)}
}

// disbelieve drops what clients write into headers that some backends believe, because proxies set them: who the client is, what it has asked for,
// and which certificate it has. Names with underscores or dots, which some backends take for these, Caddy drops.
func disbelieve(h http.Header) {
	for name := range h {
		if believed(name) {
			delete(h, name)
		}
	}
}

func believed(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Client-Ip", "Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip", "Cf-Connecting-Ip", "X-Original-Forwarded-For",
		"X-Original-Uri", "X-Original-Url", "X-Original-Host", "X-Rewrite-Url", "X-Scheme", "X-Url-Scheme", "Front-End-Https", "Client-Cert", "Client-Cert-Chain",
		"Proxy": // which CGI makes the variable HTTP_PROXY of
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded") || strings.HasPrefix(name, "Ssl-Client-")
}
