package helm

import (
	"context"
	"testing"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// simple is a chart with nothing in it.
func simple(t *testing.T, version string) []byte {
	return chartfile.Pack(t, "web", map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + version + "\n"})
}

// fetch gets a chart and loads it.
func (s source) fetch(ctx context.Context, with access) (*chartv2.Chart, error) {
	data, err := s.packed(ctx, with)
	if err != nil {
		return nil, err
	}
	return load(data)
}
