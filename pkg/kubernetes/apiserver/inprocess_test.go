package apiserver

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestInProcess(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot) // as net/http does, the first one counts
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+string(body))
	})
	cfg := handlerConfig(handler, &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte("not used")}})
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post(cfg.Host+"/api/v1/things?x=1", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if want := "POST /api/v1/things?x=1 hello"; answer.StatusCode != http.StatusCreated || string(body) != want {
		t.Errorf("got %d %q, want 201 %q", answer.StatusCode, body, want)
	}
}

// TestAborted: an answer that the handler gives up is an error, not the end of the process.
func TestAborted(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	})
	client, err := rest.HTTPClientFor(handlerConfig(handler, &rest.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Get("http://in-process/api"); !errors.Is(err, errAborted) {
		t.Errorf("got %v and the error %v", answer, err)
	}
}

func TestAwaitHealthy(t *testing.T) {
	var asked []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if len(asked) < 3 {
			http.Error(w, "not yet", http.StatusInternalServerError)
		}
	})
	if err := awaitHealthy(t.Context(), handler); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(asked, " "); got != "/readyz /readyz /readyz /healthz" {
		t.Errorf("asked for %s", got)
	}
}
