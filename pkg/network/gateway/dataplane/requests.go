package dataplane

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
)

// requests counts requests by the object that their route comes from. Objects have series from their first request on until they are gone. Hosts and
// paths, which clients choose, are no labels.
type requests struct {
	registry *prometheus.Registry
	answered *prometheus.CounterVec
	took     *prometheus.HistogramVec

	mu      sync.RWMutex    // held while a request is counted, so that none brings back the series of an object that is gone
	sources map[string]bool // of the configuration's routes
}

func newRequests() *requests {
	route := []string{"kind", "namespace", "name"}
	r := &requests{
		registry: prometheus.NewRegistry(),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: gateway.MetricsPrefix + "requests_total", Help: "Requests by the object of their route, which is empty if there was none, and by the status of the answer.",
		}, append(route, "code")),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: gateway.MetricsPrefix + "request_duration_seconds", Help: "Time from the headers of a request to the end of its answer. Upgraded connections are left out.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60},
		}, route),
	}
	r.registry.MustRegister(r.answered, r.took)
	return r
}

// handler shows what was counted.
func (r *requests) handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

// forget ends the series of objects that the configuration has no more.
func (r *requests) forget(config gateway.Config) {
	now := map[string]bool{}
	for i := range config.Routes {
		now[config.Routes[i].Source] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for source := range r.sources {
		if !now[source] {
			labels := prometheus.Labels{}
			labels["kind"], labels["namespace"], labels["name"] = parts(source)
			r.answered.DeletePartialMatch(labels)
			r.took.DeletePartialMatch(labels)
		}
	}
	r.sources = now
}

// count counts a request that was answered. The object of its route may be gone since it came: then it is one of no object.
func (r *requests) count(source string, status int, took time.Duration) {
	code := "other" // a backend can answer with any number
	if http.StatusText(status) != "" {
		code = strconv.Itoa(status)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.sources[source] {
		source = ""
	}
	kind, namespace, name := parts(source)
	r.answered.WithLabelValues(kind, namespace, name, code).Inc()
	if status != http.StatusSwitchingProtocols {
		r.took.WithLabelValues(kind, namespace, name).Observe(took.Seconds())
	}
}

// parts divides "KIND NAMESPACE/NAME".
func parts(source string) (kind, namespace, name string) {
	kind, key, _ := strings.Cut(source, " ")
	namespace, name, _ = strings.Cut(key, "/")
	return kind, namespace, name
}

// Lengths in bytes at which what a client has written is cut in the log. (Caddy answers methods of more than 32 bytes itself.)
const (
	maxLoggedPath = 512
	maxLoggedHost = 256
)

func cut(text string, most int) string { return text[:min(len(text), most)] }

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (r router) ServeHTTP(w http.ResponseWriter, req *http.Request, next caddyhttp.Handler) error {
	defer countReset(req)
	if req.ProtoMajor == 2 && req.Context().Err() != nil { // it is taken back already
		return nil
	}
	began, path := time.Now(), req.URL.Path // which a rewrite changes
	r.serving.advertise(w, req)
	recorder := caddyhttp.NewResponseRecorder(w, nil, nil)
	source, err := r.answer(recorder, req, next)
	status, took := cmp.Or(recorder.Status(), http.StatusOK), time.Since(began)
	r.serving.requests.count(source, status, took)
	if r.serving.current.Load().logged {
		logrus.WithFields(logrus.Fields{
			"client": policy.Client(req), "method": req.Method, "host": cut(req.Host, maxLoggedHost), "path": cut(path, maxLoggedPath),
			"status": status, "bytes": recorder.Size(), "took": took.Round(10 * time.Microsecond), "route": source,
		}).Info("request")
	}
	return err
}
