package servicelb

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The annotations of a Node by which the control plane and the node communicate.
const (
	// askedAnnotation is the query of the control plane: the ports that Services request on the node, as "80/TCP,443/TCP".
	askedAnnotation = "node.coracle.io/lb-ports"
	// heldAnnotation is the answer of the node, as JSON.
	heldAnnotation = "node.coracle.io/lb-ports-held"
)

// answer is a node's answer to a query.
type answer struct {
	// Asked are the ports that the node could check, in the form of the query.
	Asked string `json:"asked"`
	// Held maps each port in use to a description of its user.
	Held map[string]string `json:"held,omitempty"`
	// NAT are the external addresses of the node that none of its interfaces has: packets to them arrive at another address.
	NAT []netip.Addr `json:"nat,omitempty"`
}

// port is a port number with its protocol.
type port struct {
	number   int32
	protocol corev1.Protocol
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// portsOf are the ports of a Service.
func portsOf(s *corev1.Service) []port {
	var out []port
	for _, p := range s.Spec.Ports {
		out = append(out, port{p.Port, protocolOf(p.Protocol)})
	}
	return out
}

func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// comparePorts orders ports by number, then by protocol.
func comparePorts(a, b port) int {
	if a.number != b.number {
		return int(a.number - b.number)
	}
	return strings.Compare(string(a.protocol), string(b.protocol))
}

// formatPorts returns the query for some ports.
func formatPorts(ports []port) string {
	ports = slices.Compact(slices.SortedFunc(slices.Values(ports), comparePorts))
	var texts []string
	for _, p := range ports {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// parsePorts parses a query. It skips what it does not understand, because a later version may have written it.
func parsePorts(text string) []port {
	var out []port
	for one := range strings.SplitSeq(text, ",") {
		number, protocol, ok := strings.Cut(one, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if ok && err == nil && n > 0 {
			out = append(out, port{int32(n), corev1.Protocol(protocol)})
		}
	}
	return out
}

// answerOf returns the answer in a Node, and the ports that it is about. Without an answer that can be parsed both are empty.
func answerOf(n *corev1.Node) (a answer, about map[port]bool) {
	if json.Unmarshal([]byte(n.Annotations[heldAnnotation]), &a) != nil {
		return answer{}, nil
	}
	about = map[port]bool{}
	for _, p := range parsePorts(a.Asked) {
		about[p] = true
	}
	return a, about
}
