package metricsserver

import (
	"fmt"
	"io"
	"net/http"
)

// longestAnswer is far more than a kubelet with a thousand containers says, in bytes. Upstream reads an answer to its
// end into memory, and here that is the API server's.
const longestAnswer = 16 << 20

// bounded lets no answer be longer.
func bounded(to http.RoundTripper) http.RoundTripper { return boundedTransport{to} }

type boundedTransport struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.to.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: longestAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the kubelet's answer has more than %d MiB", longestAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
