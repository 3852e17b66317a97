package observability

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// scrape reads an endpoint as Prometheus does. A page on which a family is described twice is an error.
func scrape(ctx context.Context, config *rest.Config, token, url string) (map[string]*dto.MetricFamily, error) {
	config = rest.AnonymousClientConfig(config) // verifies the server by the cluster's authority
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return nil, fmt.Errorf("%s: %s: %s", url, answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(answer.Body)
}
