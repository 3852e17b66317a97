package controlplane

import (
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestFeatureGates(t *testing.T) {
	const off = "feature-gates=" + peerProxy + "=false"
	for name, one := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"alone":         {func(*config.Config) {}, off},
		"with others":   {func(c *config.Config) { c.Join.Joined = true }, ""},
		"external etcd": {func(c *config.Config) { c.Datastore.Endpoints = []string{"https://a:2379"} }, ""},
		"by the user": {func(c *config.Config) {
			c.Args = map[string][]string{"kube-apiserver": {"feature-gates=" + peerProxy + "=true"}}
		}, "feature-gates=" + peerProxy + "=true"},
		"with other gates": {func(c *config.Config) { c.Args = map[string][]string{"kube-scheduler": {"feature-gates=A=true"}} }, "feature-gates=A=true," + peerProxy + "=false"},
	} {
		cfg := config.Config{Dirs: paths.Dirs{Data: t.TempDir()}}
		one.change(&cfg)
		if got, err := featureGates(cfg); err != nil || got != one.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
