package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// outputs are what comes of the objects of the API.
type outputs struct {
	read      translate.Objects
	ingresses translate.Result
	api       gatewayapi.Result
	policies  policies
}

// translated translates what both APIs have. Ingresses says that there are some of our classes.
func translated(read translate.Objects, own gatewayapi.Objects, ingresses bool) *outputs {
	if ingresses || own.Orders != nil {
		read.Held = gatewayapi.Held(own)
	}
	o := &outputs{ingresses: translate.Ingresses(read), read: read}
	own.Ingresses, own.Hosts, own.Yields = ingresses, o.ingresses.Hosts, o.ingresses.Yields
	o.api = gatewayapi.Translate(own)
	return o
}

// merged returns the configuration for Ingresses and Gateways. Of equal listeners that of Ingresses comes first: nobody who may only create routes
// takes a host of theirs.
func (o *outputs) merged() (gateway.Config, gateway.Endpoints) {
	a, b := o.ingresses.Config, o.api.Config
	config := gateway.Config{
		Listeners: slices.Concat(a.Listeners, b.Listeners), Certificates: slices.Concat(a.Certificates, b.Certificates),
		Routes: slices.Concat(a.Routes, b.Routes), Streams: slices.Concat(a.Streams, b.Streams), Policies: a.Policies,
	}
	slices.SortFunc(config.Certificates, func(a, b gateway.Certificate) int { return strings.Compare(a.Source, b.Source) })
	config.Certificates = slices.CompactFunc(config.Certificates, func(a, b gateway.Certificate) bool { return a.Source == b.Source })
	endpoints := maps.Clone(o.ingresses.Endpoints)
	maps.Copy(endpoints, o.api.Endpoints)
	return config, endpoints
}

// tell leaves the outcome for the server that leads. The problem is why the configuration is not in force.
func (w *working) tell(o *outputs, problem string) {
	result := o.ingresses
	for _, l := range result.Config.Listeners {
		if why := w.refused[l.Port]; why != "" {
			for _, i := range result.Served {
				result.Problems = append(result.Problems, translate.Problem{Ingress: i, Reason: "PortInUse", Message: fmt.Sprintf("Ingresses are not served on %s of this server: %s", l, why)})
			}
		}
	}
	var nodes []*corev1.Node
	statuses, objects := o.api.Statuses(gatewayapi.Applied{Problem: problem, Refused: w.refused}), w.api.stores()
	if f := w.feed.further; f != nil {
		nodes = slices.Concat(kube.ListOf[*corev1.Node](f.nodes), kube.ListOf[*corev1.Node](f.agents))
		objects[services], objects[endpointSlices] = f.services, f.slices
	}
	w.outcome.tell(func() {
		w.outcome.classes, w.outcome.all, w.outcome.Result = slices.Clone(o.read.Classes), o.read.Ingresses, result
		w.outcome.nodes, w.outcome.statuses, w.outcome.objects = nodes, statuses, objects
		w.outcome.wantedByACME, w.outcome.policies = o.read.Orders.List(), w.applied
	})
}
