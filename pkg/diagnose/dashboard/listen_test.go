package dashboard

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

func six(t *testing.T, port int) net.Listener {
	l, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback, Port: port})
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestLoopback: nobody else can have the port on the other address of the loopback interface, to which browsers go first.
func TestLoopback(t *testing.T) {
	port := uint16(six(t, 0).Addr().(*net.TCPAddr).Port)
	if l, err := Loopback(port); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d", port)) {
		t.Errorf("with [::1]:%d in other hands: %v %v", port, l, err)
	}
	all, err := Loopback(0)
	if err != nil || len(all) != 2 {
		t.Fatalf("a free port: %v %v", all, err)
	}
	got := all[0].Addr().(*net.TCPAddr).Port
	if again, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback, Port: got}); err == nil {
		again.Close()
		t.Error("somebody else got the port on ::1")
	}
	s := &Server{API: &rest.Config{Host: "http://127.0.0.1:1"}, Page: fstest.MapFS{"index.html": {}}, Secret: "s", Hosts: []string{host}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, all, nil) }()
	for _, l := range all {
		r, _ := http.NewRequest("GET", "http://"+l.Addr().String()+"/", nil)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s answered %s", l.Addr(), answer.Status)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestBodies: a body that never comes holds a connection for a while only; one that came may be answered later.
func TestBodies(t *testing.T) {
	before := bodyTime
	defer func() { bodyTime = before }()
	bodyTime = 300 * time.Millisecond
	s := &Server{Hosts: []string{host}}
	server := httptest.NewServer(s.guard(false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(2 * bodyTime):
			w.WriteHeader(http.StatusNoContent)
		}
	})))
	defer server.Close()
	for _, one := range []struct {
		header, sent string
		want         int
	}{{"", "", http.StatusRequestTimeout}, {"Upgrade: x\r\n", "", http.StatusRequestTimeout}, {"", "12345678", http.StatusNoContent}} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nContent-Length: 8\r\n%s\r\n%s", host, host, one.header, one.sent)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != one.want {
			t.Errorf("a body of %q was answered with %v %v, not %d", one.sent, answer, err, one.want)
		}
	}
}

// TestNobodyReads: who reads nothing of the page holds a connection for a while only; who has the cookie gets a log that lasts longer.
func TestNobodyReads(t *testing.T) {
	const timeout = 300 * time.Millisecond
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "begin ")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(2 * timeout):
			_, _ = io.WriteString(w, "end")
		}
	}))
	defer a.Close()
	s := &Server{API: &rest.Config{Host: a.URL}, Secret: "s", IP: true, Page: fstest.MapFS{"assets/page.js": {Data: make([]byte, 32<<20)}}}
	handler, err := s.Handler(false)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, closed := newServer(handler), make(chan net.Conn, 10)
	server.WriteTimeout = timeout
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c
		}
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /assets/page.js HTTP/1.1\r\nHost: %s\r\n\r\n", l.Addr())
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the connection is open still")
	}
	r, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/session", strings.NewReader(`{"secret":"s"}`))
	r.Header.Set("Origin", "http://"+l.Addr().String())
	entered, err := http.DefaultClient.Do(r)
	if err != nil || len(entered.Cookies()) != 1 {
		t.Fatal(entered, err)
	}
	entered.Body.Close()
	r, _ = http.NewRequest("GET", "http://"+l.Addr().String()+"/api/v1/namespaces/a/pods/b/log", nil)
	r.AddCookie(entered.Cookies()[0])
	log, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Body.Close()
	if data, err := io.ReadAll(log.Body); err != nil || string(data) != "begin end" {
		t.Errorf("the log is %q, %v", data, err)
	}
}

// TestCertificateWithoutNames: the page gets a list, if an empty one.
func TestCertificateWithoutNames(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Data: map[string][]byte{"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}}
	r := httptest.NewRequest("GET", "/certificates/default/web", nil)
	r.SetPathValue("namespace", "default")
	r.SetPathValue("name", "web")
	w := httptest.NewRecorder()
	(&certificates{fake.NewClientset(secret)}).ServeHTTP(w, r)
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got["names"] == nil {
		t.Errorf("it is shown as %s: %v", w.Body, err)
	}
}
