// Package gateway runs the conformance tests of the Gateway API; scripts/conformance calls it. It is a module of its own, because these tests need
// modules that coracle does not have.
package gateway

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestGatewayAPI(t *testing.T) { conformance.RunConformance(t) }
