package bucket

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
	"golang.org/x/time/rate"

	"github.com/coracle-dev/coracle/test/buckets"
)

// TestCredentialsExpire: temporary credentials end in the middle. The error says so, nothing is removed, and with new ones only the rest is sent.
func TestCredentialsExpire(t *testing.T) {
	t.Parallel()
	const untilExpired = 20 // requests that write
	s := buckets.Start(t, nil, listen(t), nil)
	var writes atomic.Int64
	real := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // the server knows no temporary credentials
		r.SetURL(&url.URL{Scheme: "http", Host: s.Addr})
		r.Out.Header.Del("X-Amz-Security-Token")
		r.Out.Host = s.Addr
		r.Out = signer.SignV4(*r.Out, s.Access, s.Secret, "", "us-east-1")
	}}
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		valid := "first"
		if r.Method == http.MethodPut {
			writes.Add(1)
		}
		if writes.Load() > untilExpired {
			valid = "second"
		}
		if r.Header.Get("X-Amz-Security-Token") != valid {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")
			return
		}
		real.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	with := func(token string) *Bucket {
		c := settings(s)
		c.Endpoint, c.SessionToken, c.Insecure = proxy.Listener.Addr().String(), token, false
		c.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
		return mustOpen(t, c)
	}
	if _, err := with("first").Put(t.Context(), summary("before", time.Hour), testKey, testKeys, strings.NewReader("a small one")); err != nil {
		t.Fatal(err)
	}
	before, data := s.Files(), records(10_000)
	_, err := with("first").Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(data))
	for _, want := range []string{"the bucket " + s.Bucket, "have expired", "--etcd-s3-session-token"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	after := s.Files()
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("%s is gone", path)
		}
	}
	sent, err := with("second").Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(data))
	if missing := sent.Pieces - (len(after) - len(before)); err != nil || sent.New != missing || missing == sent.Pieces {
		t.Errorf("%+v, want %d new, %v", sent, missing, err)
	}
	all, err := with("second").ListAll(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, x := range all {
		if err := with("second").Get(t.Context(), x, testKeys, io.Discard); err != nil {
			t.Error(err)
		}
	}
}

// TestSlowServer: what a slow line needs is waited for, and an error names the setting if it is more than that.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	const perSecond = 200 << 10
	s := buckets.Start(t, nil, listen(t), nil)
	c, data := settings(s), records(1_000)
	c.Endpoint = slowLine(t, s.Addr, perSecond)
	c.Timeout = 200 * time.Millisecond
	_, err := mustOpen(t, c).Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(data))
	if err == nil || !strings.Contains(err.Error(), "did not answer in 200ms: see --etcd-s3-timeout") {
		t.Errorf("in a time that is too short: %v", err)
	}
	c.Endpoint, c.Timeout = slowLine(t, s.Addr, perSecond), time.Minute
	began := time.Now()
	sent, err := mustOpen(t, c).Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(data))
	took := time.Since(began)
	t.Logf("%+v in %s", sent, took)
	if err != nil || sent.Bytes < perSecond || took < time.Duration(sent.Bytes-perSecond/10)*time.Second/perSecond {
		t.Errorf("%+v in %s, %v", sent, took, err)
	}
	all, err := mustOpen(t, settings(s)).ListAll(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := mustOpen(t, settings(s)).Get(t.Context(), all[0], testKeys, io.Discard); err != nil {
		t.Error(err)
	}
}

// slowLine returns the address of a proxy of TCP that lets some bytes a second through to a server.
func slowLine(t *testing.T, to string, perSecond int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	limit := rate.NewLimiter(rate.Limit(perSecond), perSecond/10)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(in, out)
					in.Close()
				}()
				_, _ = io.Copy(limited{out, limit}, in)
			}()
		}
	}()
	return l.Addr().String()
}

// limited writes as fast as a limit allows.
type limited struct {
	io.Writer
	*rate.Limiter
}

func (l limited) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), l.Burst())]
		if err := l.WaitN(context.Background(), len(part)); err != nil {
			return n, err
		}
		m, err := l.Writer.Write(part)
		if n += m; err != nil {
			return n, err
		}
		b = b[len(part):]
	}
	return n, nil
}
