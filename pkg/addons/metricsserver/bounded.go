package metricsserver

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the limit of an answer in bytes, far more than that of a kubelet with a thousand containers. Upstream reads
// the whole answer into memory, which is the API server's here.
const maxAnswer = 16 << 20

// bounded limits the answers of a transport to maxAnswer.
func bounded(to http.RoundTripper) http.RoundTripper { return boundedTransport{to} }

type boundedTransport struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.to.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the kubelet's answer has more than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
