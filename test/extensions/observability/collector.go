// Package observability is the example of docs/extending/observability.md: traces, metrics, Events and the audit log.
package observability

import (
	"context"
	"encoding/hex"
	"net/http"
	"sync"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"k8s.io/client-go/rest"
)

// Span is a part of a trace, of one service.
type Span struct {
	Service, Name, Trace, ID, Parent string
	Attributes                       map[string]string
}

// Collector receives spans by OTLP, and keeps them.
type Collector struct {
	otlp.UnimplementedTraceServiceServer
	lock  sync.Mutex
	spans []Span
}

// Export is called by whoever has spans.
func (c *Collector) Export(_ context.Context, r *otlp.ExportTraceServiceRequest) (*otlp.ExportTraceServiceResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := attributes(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{service, s.GetName(), hex.EncodeToString(s.GetTraceId()), hex.EncodeToString(s.GetSpanId()),
					hex.EncodeToString(s.GetParentSpanId()), attributes(s.GetAttributes())})
			}
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

// Find returns the spans that are meant.
func (c *Collector) Find(is func(Span) bool) (found []Span) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, s := range c.spans {
		if is(s) {
			found = append(found, s)
		}
	}
	return found
}

func attributes(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		m[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return m
}

// Traced returns a configuration of client-go whose requests belong to a trace, as children of one of its spans.
func Traced(config *rest.Config, trace, span string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("traceparent", "00-"+trace+"-"+span+"-01")
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
