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

// share leaves for each agent that is a gateway what it serves, which is mostly what this server does. Whether an agent gets it is decided at its request.
func (w *working) share(objects translate.Objects, own gatewayapi.Objects, ingresses bool, ofServer gateway.Config, endpointsOfServer gateway.Endpoints) {
	f := w.feed.further
	if f == nil { // nothing is served anywhere
		w.Shares.Set(nil, shareOf(gateway.Config{}, nil))
		return
	}
	of, same, atServer := map[string][]byte{}, map[string][]byte{}, heldAt(objects.Services, w.Node)
	for _, n := range kube.ListOf[*corev1.Node](f.agents) {
		var addresses []netip.Addr
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				addresses = append(addresses, ip)
			}
		}
		held := heldAt(objects.Services, addresses)
		if same[held] == nil { // mostly that of all agents
			config, endpoints := ofServer, endpointsOfServer
			if held != atServer {
				_, config, endpoints = w.translate(objects, own, addresses, ingresses)
				config.Challenges = ofServer.Challenges
			}
			same[held] = shareOf(gateway.WithoutAddresses(config, endpoints))
		}
		of[n.Name] = same[held]
	}
	w.Shares.Set(of, nil)
}

// heldAt names the Services of type LoadBalancer, and with external addresses, at some addresses: they are all that a translation depends on of a node.
func heldAt(services []*corev1.Service, addresses []netip.Addr) string {
	var held []string
	for _, s := range services {
		if slices.ContainsFunc(s.Spec.ExternalIPs, func(text string) bool {
			ip, err := netip.ParseAddr(text)
			return err == nil && slices.Contains(addresses, ip)
		}) {
			held = append(held, "external "+s.Namespace+"/"+s.Name)
		}
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
	slices.Sort(held)
	return strings.Join(held, ", ")
}

// shareOf returns a share as it is sent.
func shareOf(config gateway.Config, endpoints gateway.Endpoints) []byte {
	data, err := json.Marshal(gateway.Share{Version: version.Version, Config: config, Endpoints: endpoints})
	if err != nil {
		return nil // it has only what JSON has
	}
	return data
}
