package kubelet

import (
	"net/http"
)

// late is a transport that is made once the kubelet has its first certificate; requests wait for that. One that is
// made before would send requests without a certificate, and break those off that are on their way when there is one.
type late struct {
	has  <-chan struct{}
	make func() (http.RoundTripper, error) // the same one every time
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
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

// CloseIdleConnections is for client-go, which finds it by name.
func (l late) CloseIdleConnections() {
	select {
	case <-l.has:
		if next, err := l.make(); err == nil {
			(&http.Client{Transport: next}).CloseIdleConnections()
		}
	default: // there are none
	}
}
