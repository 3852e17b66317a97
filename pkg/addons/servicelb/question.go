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

// The annotations of a Node by which the two halves talk.
const (
	// askedAnnotation is what the control plane asks: ports that Services want on this node, as "80/TCP,443/TCP".
	askedAnnotation = "node.coracle.io/lb-ports"
	// heldAnnotation is what the node says: an answer, as JSON.
	heldAnnotation = "node.coracle.io/lb-ports-held"
)

// answer is what a node says about the ports that it was asked about.
type answer struct {
	// Asked are those that it could look at, spelled as in the question.
	Asked string `json:"asked"`
	// Held are the ports in use, and by whom, in words.
	Held map[string]string `json:"held,omitempty"`
	// NAT are the node's external addresses that none of its interfaces has: packets to them arrive at another one.
	NAT []netip.Addr `json:"nat,omitempty"`
}

// port is a port of a protocol.
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

// comparePorts orders ports as people do.
func comparePorts(a, b port) int {
	if a.number != b.number {
		return int(a.number - b.number)
	}
	return strings.Compare(string(a.protocol), string(b.protocol))
}

// spell is the question for some ports.
func spell(ports []port) string {
	ports = slices.Compact(slices.SortedFunc(slices.Values(ports), comparePorts))
	var texts []string
	for _, p := range ports {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// parseAsked reads a question. What it does not understand it leaves out: a later version may have written it.
func parseAsked(text string) []port {
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

// answerOf is what a Node says, and which ports that is about. A node that says nothing, or nothing that can
// be read, has an empty one.
func answerOf(n *corev1.Node) (a answer, about map[port]bool) {
	if json.Unmarshal([]byte(n.Annotations[heldAnnotation]), &a) != nil {
		return answer{}, nil
	}
	about = map[port]bool{}
	for _, p := range parseAsked(a.Asked) {
		about[p] = true
	}
	return a, about
}
