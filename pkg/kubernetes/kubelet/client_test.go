package kubelet

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answers is a transport that answers all requests alike.
type answers struct {
	code int
	body string
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// TestUnknownKey: the kubelet forgets a certificate whose key the API server does not know, and no other.
func TestUnknownKey(t *testing.T) {
	open := make(chan struct{})
	close(open)
	for name, c := range map[string]struct {
		answers
		bootstrap string
		forgotten bool
	}{
		"unknown":                 {answers{401, `{"kind":"Status","reason":"NodeKeyUnknown"}`}, "node.kubeconfig", true},
		"removed":                 {answers{401, `{"kind":"Status","reason":"NodeRemoved"}`}, "node.kubeconfig", false},
		"forbidden":               {answers{403, `{"kind":"Status","reason":"NodeKeyUnknown"}`}, "node.kubeconfig", false},
		"nothing to request with": {answers{401, `{"kind":"Status","reason":"NodeKeyUnknown"}`}, "", false},
		"no JSON":                 {answers{401, "no"}, "node.kubeconfig", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := Kubelet{PKI: t.TempDir(), BootstrapKubeconfig: c.bootstrap}
			file := filepath.Join(k.PKI, currentCert)
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			end := make(chan error, 1)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test", nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it has none, and goes on
				answer, err := gate{c.answers, open, "NodeKeyUnknown", func() { k.forgetCertificate(end) }}.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(answer.Body); err != nil || string(body) != c.body {
					t.Errorf("the kubelet reads %q, %v", body, err)
				}
			}
			if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) != c.forgotten || (len(end) == 1) != c.forgotten {
				t.Errorf("the certificate: %v, %d ends", err, len(end))
			}
		})
	}
}
