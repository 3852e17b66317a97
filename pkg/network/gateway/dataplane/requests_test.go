package dataplane

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testRequests: requests are counted by the objects of their routes until these are gone, and each is a line of the log if that is wanted.
func testRequests(t *testing.T, s *served, config gateway.Config, port uint16) {
	first, second := route("first.test", "/", "first", gateway.ToHTTP), route("second.test", "/", "second", gateway.ToHTTP)
	first.Source, second.Source = "Ingress shop/first", "HTTPRoute shop/second"
	config.Routes, config.LogRequests = []gateway.Route{first, second}, true
	came, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(came); <-answer }))
	t.Cleanup(slow.Close)
	endpoints := gateway.Endpoints{"first": {backend(t, "first")}, "slow": {slow.Listener.Addr().String()}}
	var log bytes.Buffer
	before := logrus.StandardLogger().Out
	logrus.SetOutput(&log)
	defer logrus.SetOutput(before)
	s.apply(t, config, endpoints)
	s.get(t, port, "first.test", "/a?token=secret", 200, "first /a?token=secret")
	s.get(t, port, "first.test", "/b", 200, "first /b")
	s.get(t, port, "second.test", "/", 503, "no endpoint")
	s.get(t, port, "unknown.test", "/", 404, "nothing serves")
	counted := func(code, kind, name string) float64 {
		namespace := "shop"
		if kind == "" {
			namespace = ""
		}
		return testutil.ToFloat64(s.requests.answered.WithLabelValues(kind, namespace, name, code))
	}
	if counted("200", "Ingress", "first") != 2 || counted("503", "HTTPRoute", "second") != 1 || counted("404", "", "") < 1 {
		text, _ := testutil.CollectAndFormat(s.requests.answered, expfmt.TypeTextPlain, gateway.MetricsPrefix+"requests_total")
		t.Errorf("%s", text)
	}
	if n := testutil.CollectAndCount(s.requests.took, gateway.MetricsPrefix+"request_duration_seconds"); n < 3 {
		t.Errorf("%d series of durations", n)
	}
	lines := log.String()
	for _, want := range []string{"127.0.0.1", "first.test", "/b", "200", "Ingress shop/first", "second.test", "503"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is not in the log: %s", want, lines)
		}
	}
	if strings.Contains(lines, "secret") {
		t.Errorf("a query is in the log: %s", lines)
	}
	log.Reset()
	client := direct(nil)
	defer client.CloseIdleConnections()
	long := strings.Repeat("x", 4096)
	ask(t, client, "GET", at(port, "/"+long), long+".test", "")
	ask(t, client, "GET", at(port, "/"), "first.test", "") // on the same connection, so that the line of the former is written
	if line := log.String(); !strings.Contains(line, "xxx") || strings.Contains(line, strings.Repeat("x", maxLoggedPath+1)) || strings.Count(line, "x") > maxLoggedPath+maxLoggedHost+100 {
		t.Errorf("what a client writes is in the log at any length: %s", line)
	}

	config.Routes[1].Backends[0].Endpoints = "slow" // a request of an object that is gone before the answer
	s.apply(t, config, endpoints)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ask(t, client, "GET", at(port, "/"), "second.test", "")
	}()
	<-came
	config.Routes, config.LogRequests = []gateway.Route{first}, false
	s.apply(t, config, endpoints)
	none := counted("200", "", "")
	close(answer)
	<-ended
	eventually(t, func() bool { return counted("200", "", "") == none+1 })
	log.Reset()
	s.get(t, port, "first.test", "/", 200, "first /")
	text, err := testutil.CollectAndFormat(s.requests.answered, expfmt.TypeTextPlain, gateway.MetricsPrefix+"requests_total")
	if err != nil || strings.Contains(string(text), "second") || !strings.Contains(string(text), "first") {
		t.Errorf("%s %v", text, err)
	}
	if log.Len() > 0 {
		t.Errorf("the log is written: %s", log.String())
	}
}
