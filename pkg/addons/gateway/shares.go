package gateway

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// share leaves for each agent that is a gateway what it serves. Whether an agent gets it is decided at its request.
func (w *working) share(objects translate.Objects, own gatewayapi.Objects, ingresses bool, challenges []gateway.Challenge) {
	f := w.feed.further
	if f == nil { // nothing is served anywhere
		w.Shares.Set(nil, shareOf(gateway.Config{}, nil))
		return
	}
	of, same := map[string][]byte{}, map[string][]byte{}
	for _, n := range kube.ListOf[*corev1.Node](f.agents) {
		var addresses []netip.Addr
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				addresses = append(addresses, ip)
			}
		}
		held := heldAt(objects.Services, addresses)
		if same[held] == nil { // mostly that of all agents
			_, config, endpoints := w.translate(objects, own, addresses, ingresses)
			config.Challenges = challenges
			same[held] = shareOf(gateway.WithoutAddresses(config, endpoints))
		}
		of[n.Name] = same[held]
	}
	w.Shares.Set(of, nil)
}

// heldAt names the Services of type LoadBalancer at some addresses, which are all that a translation depends on of a node.
func heldAt(services []*corev1.Service, addresses []netip.Addr) string {
	var held []string
	for _, s := range services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, i := range s.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(i.IP); err == nil && slices.Contains(addresses, ip) {
				held = append(held, s.Namespace+"/"+s.Name)
				break
			}
		}
	}
	return strings.Join(held, " ")
}

// shareOf returns a share as it is sent.
func shareOf(config gateway.Config, endpoints gateway.Endpoints) []byte {
	data, err := json.Marshal(gateway.Share{Version: version.Version, Config: config, Endpoints: endpoints})
	if err != nil {
		return nil // it has only what JSON has
	}
	return data
}
