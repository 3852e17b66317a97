package metricsserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// TestBounded: a kubelet that never ends fills no memory, and one that ends is heard to its end.
func TestBounded(t *testing.T) {
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := []byte(strings.Repeat("x", 1<<16))
		for n := 0; r.URL.Path == "/ends" && n < 10 || r.URL.Path == "/never"; n++ {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	defer kubelet.Close()
	config := (&MetricsServer{}).client(kube.APICaches{})
	transport, err := rest.TransportFor(&config)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	for path, want := range map[string]int64{"/ends": 10 << 16, "/never": maxAnswer} {
		response, err := client.Get(kubelet.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if got != want || (err != nil) != (path == "/never") {
			t.Errorf("%s: %d bytes, want %d: %v", path, got, want, err)
		}
		if err != nil && !strings.Contains(err.Error(), "more than 16 MiB") {
			t.Error(err)
		}
	}
}
