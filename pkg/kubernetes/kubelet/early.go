package kubelet

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// tokens is a transport that asks again for the token of a pod that the API server refuses: its admission plugin NodeRestriction learns from a watch of its own that
// the pod is on this node, which can be later than the kubelet learns it. After an error the kubelet would log it and wait for half a second.
type tokens struct{ next http.RoundTripper }

// tokenWaits are the times before further requests, the first and the last one; each is twice as long as the one before.
const (
	firstTokenWait = 10 * time.Millisecond
	lastTokenWait  = 320 * time.Millisecond
)

func (t tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/token") || r.GetBody == nil {
		return answer, err
	}
	for wait := firstTokenWait; wait <= lastTokenWait; wait *= 2 {
		if err != nil || answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusNotFound {
			return answer, err
		}
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return answer, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection is used again
		answer.Body.Close()
		again := r.Clone(r.Context())
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		answer, err = t.next.RoundTrip(again)
	}
	return answer, err
}

// WrappedRoundTripper returns the transport for client-go, which closes its idle connections.
func (t tokens) WrappedRoundTripper() http.RoundTripper { return t.next }
