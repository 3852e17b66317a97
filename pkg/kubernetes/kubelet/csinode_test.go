package kubelet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestFirstReport: a restarted kubelet reads that its Node exists, and reports its status, after its CSINode is initialized. A new Node does not
// wait, because the CSINode needs it.
func TestFirstReport(t *testing.T) {
	const created, exists = http.StatusCreated, http.StatusConflict
	registered := exists
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(registered)
		case r.URL.Path == "/apis/storage.k8s.io/v1/csinodes/refused":
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: newCSINode().reports(http.DefaultTransport)}
	do := func(ctx context.Context, method, path string) error {
		request, err := http.NewRequestWithContext(ctx, method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return err
	}
	get := func(path string) {
		if err := do(t.Context(), http.MethodGet, path); err != nil {
			t.Fatal(err)
		}
	}
	register := func() <-chan error {
		done := make(chan error, 1)
		go func() { done <- do(t.Context(), http.MethodPost, "/api/v1/nodes") }()
		return done
	}

	registered = created
	if err := <-register(); err != nil {
		t.Fatal(err)
	}
	registered = exists
	done := register()
	get("/apis/storage.k8s.io/v1/csinodes/refused")
	get("/apis/storage.k8s.io/v1/csinodes/n?resourceVersion=0")
	get("/api/v1/nodes/n")
	select {
	case <-done:
		t.Fatal("the Node is reported before the CSINode is initialized")
	case <-time.After(50 * time.Millisecond):
	}
	get("/apis/storage.k8s.io/v1/csinodes/n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-register(); err != nil { // and never again
		t.Fatal(err)
	}
}
