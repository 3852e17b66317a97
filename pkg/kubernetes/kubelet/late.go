package kubelet

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// lateTransport is a transport that is made when the kubelet has its first certificate, as client-go makes none without the file. Requests wait until then.
type lateTransport struct {
	has  <-chan struct{}                   // closed when there is a certificate
	make func() (http.RoundTripper, error) // returns the same transport each time
}

func (l lateTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-l.has:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	next, err := l.make()
	if err != nil {
		return nil, err
	}
	return next.RoundTrip(r)
}

// CloseIdleConnections is called by client-go, which looks for a method of this name.
func (l lateTransport) CloseIdleConnections() {
	select {
	case <-l.has:
		if next, err := l.make(); err == nil {
			utilnet.CloseIdleConnectionsFor(next)
		}
	default: // there are none
	}
}
