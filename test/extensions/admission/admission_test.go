package admission

import (
	"encoding/base64"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestWebhooksAndPolicies plays what needs no setting of coracle.
func TestWebhooksAndPolicies(t *testing.T) {
	c := cluster.Start(t, "admission", cluster.Options{Images: []string{"busybox"}})
	c.Run(t, "webhooks", func(t *testing.T, s cluster.Space) {
		server := c.Serve(t, webhooks())
		s.Play(t, "Webhooks", "SERVICE="+server.Name, "CA_BUNDLE="+base64.StdEncoding.EncodeToString(server.CABundle))
	})
	c.Run(t, "policies", func(t *testing.T, s cluster.Space) { s.Play(t, "Policies") })
	c.Run(t, "taints", func(t *testing.T, s cluster.Space) { s.Play(t, "Plug-ins as they are") })
}

// TestPlugins plays the same with plug-ins on and off.
func TestPlugins(t *testing.T) {
	c := cluster.Start(t, "admission", cluster.Options{Config: "config.yaml"})
	c.Run(t, "settings", func(t *testing.T, s cluster.Space) { s.Play(t, "Plug-ins on and off") })
}
