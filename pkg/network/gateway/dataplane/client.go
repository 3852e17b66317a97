package dataplane

import (
	"net/http"
	"strconv"

	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
)

// introduce tells a backend who the client is and what it has asked for, and drops what clients write into headers that some backends believe.
func introduce(req *http.Request, port uint16) {
	for _, name := range []string{
		"Forwarded", "True-Client-Ip", "X-Client-Ip", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Original-Forwarded-For", "X-Original-Url",
		"X-Rewrite-Url", "X-Scheme",
	} {
		delete(req.Header, name)
	}
	client := policy.Client(req).String()
	req.Header["X-Forwarded-For"], req.Header["X-Real-Ip"] = []string{client}, []string{client}
	req.Header["X-Forwarded-Host"] = []string{req.Host}
	req.Header["X-Forwarded-Port"] = []string{strconv.Itoa(int(port))}
	req.Header["X-Forwarded-Proto"] = []string{policy.Scheme(req)}
}
