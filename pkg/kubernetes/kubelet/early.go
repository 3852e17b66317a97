package kubelet

import (
	"io"
	"net/http"
	"regexp"
	"time"
)

// early is a transport that asks again for what a pod needs if the API server refuses it: its Node authorizer and its admission plugin NodeRestriction learn from
// watches of their own that the pod is on this node, which can be later than the kubelet learns it. After an error the kubelet would log it, and wait for half a
// second for a token, and for ten for a claim.
type early struct{ next http.RoundTripper }

// earlyWaits are the times before further requests, the first and the last one; each is twice as long as the one before.
const (
	firstEarlyWait = 10 * time.Millisecond
	lastEarlyWait  = 160 * time.Millisecond
)

// podNeeds are the paths of what the kubelet reads for one of its pods.
var podNeeds = regexp.MustCompile(`^/api/v1/(namespaces/[^/]+/(configmaps|secrets|persistentvolumeclaims)|persistentvolumes)(/[^/]+)?$`)

// tokens is the path of the tokens of a service account.
var tokens = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/serviceaccounts/[^/]+/token$`)

func (e early) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.next.RoundTrip(r)
	token := r.Method == http.MethodPost && r.GetBody != nil && tokens.MatchString(r.URL.Path)
	if !token && (r.Method != http.MethodGet || !podNeeds.MatchString(r.URL.Path)) {
		return answer, err
	}
	for wait := firstEarlyWait; wait <= lastEarlyWait; wait *= 2 {
		if err != nil || answer.StatusCode != http.StatusForbidden && (answer.StatusCode != http.StatusNotFound || !token) {
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
		if token {
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		answer, err = e.next.RoundTrip(again)
	}
	return answer, err
}

// WrappedRoundTripper returns the transport for client-go, which closes its idle connections.
func (e early) WrappedRoundTripper() http.RoundTripper { return e.next }
