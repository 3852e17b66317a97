package helmcharts

import (
	"testing"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// simple is a chart with nothing in it.
func simple(t *testing.T, version string) []byte {
	return chartfile.Pack(t, "web", map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + version + "\n"})
}
