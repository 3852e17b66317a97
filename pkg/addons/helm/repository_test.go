package helm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// chartServer is a repository with TLS and a login, and another host that it may point to.
type chartServer struct {
	repo, other *httptest.Server
	ca          string
	loggedIn    bool // at the other host
}

func newChartServer(t *testing.T) *chartServer {
	s := &chartServer{}
	archive := simple(t, "1.0.0")
	sum := sha256.Sum256(archive)
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }
	s.other = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, s.loggedIn = r.BasicAuth()
		serve(w, r)
	}))
	t.Cleanup(s.other.Close)
	index := fmt.Sprintf(`apiVersion: v1
entries:
  web:
  - {version: 1.0.0, urls: [charts/web-1.0.0.tgz], digest: %s}
  - {version: 2.0.0-rc.1, urls: [web-2.tgz]}
  elsewhere: [{version: 1.0.0, urls: ["%s/web.tgz"]}]
  forged: [{version: 1.0.0, urls: [charts/web-1.0.0.tgz], digest: %s}]
  nowhere: [{version: 1.0.0}]
`, hex.EncodeToString(sum[:]), s.other.URL, strings.Repeat("0", 64))
	mux := http.NewServeMux()
	mux.HandleFunc("/sub/index.yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(index)) })
	mux.HandleFunc("/sub/charts/web-1.0.0.tgz", serve)
	s.repo = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.repo.Close)
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.repo.Certificate().Raw}))
	return s
}

func TestRepository(t *testing.T) {
	s := newChartServer(t)
	me := login{"me", "hunter2"}
	for _, tt := range []struct {
		name, chart, version       string
		login                      login
		ca                         string
		loginForAllHosts, insecure bool
		want                       string // "" is the chart
		told                       bool   // the other host got the login
	}{
		{name: "newest", chart: "web", login: me, ca: s.ca},
		{name: "range", chart: "web", version: "~1.0", login: me, ca: s.ca},
		{name: "insecure", chart: "web", login: me, insecure: true},
		{name: "no CA", chart: "web", login: me, want: "certificate"},
		{name: "no login", chart: "web", ca: s.ca, want: "check authSecret"},
		{name: "no such version", chart: "web", version: "9.0.0", login: me, ca: s.ca, want: "there is no version 9.0.0"},
		{name: "no version", chart: "web", version: "x y", login: me, ca: s.ca, want: "neither a version nor a range"},
		{name: "no such chart", chart: "none", login: me, ca: s.ca, want: "has no chart none"},
		{name: "no address", chart: "nowhere", login: me, ca: s.ca, want: "says nowhere"},
		{name: "another host", chart: "elsewhere", login: me, ca: s.ca},
		{name: "another host, trusted", chart: "elsewhere", login: me, ca: s.ca, loginForAllHosts: true, told: true},
		{name: "another archive", chart: "forged", login: me, ca: s.ca, want: "SHA-256 differs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.loggedIn = false
			client, err := newClient([]string{tt.ca}, tt.insecure)
			if err != nil {
				t.Fatal(err)
			}
			a := access{client: client, login: tt.login, loginForAllHosts: tt.loginForAllHosts, memorySlot: make(chan struct{}, 1)}
			spec := chartSpec{Repo: s.repo.URL + "/sub", Chart: tt.chart, Version: tt.version}
			c, err := source{spec: spec, charts: "/charts"}.fetch(t.Context(), a)
			switch {
			case tt.want == "" && (err != nil || c.Name() != "web"):
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("error is %v, want %s", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the error tells a secret: %v", err)
			}
			if s.loggedIn != tt.told {
				t.Errorf("the other host was told the login: %v", s.loggedIn)
			}
		})
	}
}

func TestDownloadIsLimitedInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer slow.Close()
	client, err := newClient(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (access{client: client, memorySlot: make(chan struct{}, 1)}).fromRepository(ctx, slow.URL, "web", ""); err == nil {
		t.Error("a chart from a server that says nothing")
	}
}

// TestIndexIsBounded: what a repository sends must not fill the memory of the process, which is the API server's too.
func TestIndexIsBounded(t *testing.T) {
	large := false
	repo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("entries: {web: [{version: 1.0.0}]}\n"))
		if large {
			_, _ = w.Write(bytes.Repeat([]byte("#"), indexLimit))
		}
	}))
	defer repo.Close()
	base, err := url.Parse(repo.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := access{client: repo.Client(), memorySlot: make(chan struct{}, 1)}
	if got, err := a.entries(t.Context(), base, "web"); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	ctx, enough := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer enough()
	a.memorySlot <- struct{}{} // another one
	if _, err := a.entries(ctx, base, "web"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an index is read beside another: %v", err)
	}
	<-a.memorySlot
	large = true
	if _, err := a.entries(t.Context(), base, "web"); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("a huge index: %v", err)
	}
}
