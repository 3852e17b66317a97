package main

import (
	"io"
	"strings"
	"testing"
)

// TestGatewayAPIChannel: a channel that there is not is refused before a cluster is looked for.
func TestGatewayAPIChannel(t *testing.T) {
	for channel, want := range map[string]string{"nonsense": "must be one of standard|experimental", "": "must be one of", "experimental": "no-such-kubeconfig"} {
		t.Setenv("KUBECONFIG", "/no-such-kubeconfig")
		c := gatewayAPICommand()
		c.SetArgs([]string{"--channel", channel})
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("channel %q: %v", channel, err)
		}
	}
}
