package gateway

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// metricsTimeout bounds how long a scrape waits for a gateway that hangs.
const metricsTimeout = 5 * time.Second

// metricsOf implements prometheus.Gatherer with the metrics of the gateway's process. There are none while it does not run.
type metricsOf gateway.Dir

func (m metricsOf) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	answer, err := gateway.Dir(m).Metrics(ctx)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK { // a process of an earlier version
		return nil, nil
	}
	return kube.DecodeMetrics(answer.Header, answer.Body)
}
