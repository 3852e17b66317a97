package kubelet

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// refusing answers the first requests with a status, and later ones with their body.
type refusing struct {
	status, times int
	asked         int
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	f.asked++
	if f.asked <= f.times {
		return &http.Response{StatusCode: f.status, Body: io.NopCloser(strings.NewReader("no"))}, nil
	}
	return &http.Response{StatusCode: http.StatusCreated, Body: r.Body}, nil
}

// TestEarly: what a pod needs is asked for until the API server knows that the pod is on this node, for a third of a second; nothing else is asked for again.
func TestEarly(t *testing.T) {
	const token = "/api/v1/namespaces/a/serviceaccounts/b/token"
	for _, c := range []struct {
		name, method, path    string
		server                refusing
		status, asked         int
		soonerThan, laterThan time.Duration
	}{
		{"at once", http.MethodPost, token, refusing{}, http.StatusCreated, 1, time.Millisecond, -1},
		{"known later", http.MethodPost, token, refusing{status: http.StatusForbidden, times: 3}, http.StatusCreated, 4, 100 * time.Millisecond, 60 * time.Millisecond},
		{"pod known later", http.MethodPost, token, refusing{status: http.StatusNotFound, times: 1}, http.StatusCreated, 2, 20 * time.Millisecond, 0},
		{"never", http.MethodPost, token, refusing{status: http.StatusForbidden, times: 100}, http.StatusForbidden, 6, 400 * time.Millisecond, 0},
		{"claim known later", http.MethodGet, "/api/v1/namespaces/a/persistentvolumeclaims/b", refusing{status: http.StatusForbidden, times: 2}, http.StatusCreated, 3, 50 * time.Millisecond, 0},
		{"volume known later", http.MethodGet, "/api/v1/persistentvolumes/b", refusing{status: http.StatusForbidden, times: 1}, http.StatusCreated, 2, 20 * time.Millisecond, 0},
		{"no such claim", http.MethodGet, "/api/v1/namespaces/a/persistentvolumeclaims/b", refusing{status: http.StatusNotFound, times: 1}, http.StatusNotFound, 1, time.Millisecond, -1},
		{"secret known later", http.MethodGet, "/api/v1/namespaces/a/secrets", refusing{status: http.StatusForbidden, times: 1}, http.StatusCreated, 2, 20 * time.Millisecond, 0},
		{"another error", http.MethodPost, token, refusing{status: http.StatusInternalServerError, times: 1}, http.StatusInternalServerError, 1, time.Millisecond, -1},
		{"another request", http.MethodGet, "/api/v1/namespaces/a/pods/b", refusing{status: http.StatusForbidden, times: 1}, http.StatusForbidden, 1, time.Millisecond, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, "https://x"+c.path, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			answer, err := early{&c.server}.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took <= c.laterThan || took >= c.soonerThan {
				t.Errorf("%s: took %s", c.name, took)
			}
			if answer.StatusCode != c.status || c.server.asked != c.asked {
				t.Errorf("%s: %d after %d requests", c.name, answer.StatusCode, c.server.asked)
			}
			if body, err := io.ReadAll(answer.Body); answer.StatusCode == http.StatusCreated && string(body) != "body" || err != nil {
				t.Errorf("%s: the last request had %q, %v", c.name, body, err)
			}
		})
	}
}
