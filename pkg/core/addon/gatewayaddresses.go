package addon

import (
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// OwnAddress is the condition of a Gateway that has addresses of pools: those in its status belong to it alone. Without it they are addresses of
// servers.
const OwnAddress = "coracle.dev/OwnAddress"

// Own returns the addresses that belong to a Gateway alone, by the conditions and the addresses of type IPAddress in its status; none if it has
// those of servers.
func Own(conditions []metav1.Condition, addresses []string) (out []netip.Addr) {
	if !meta.IsStatusConditionTrue(conditions, OwnAddress) {
		return nil
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// Gateway is a Gateway of our class, as far as its addresses depend on it.
type Gateway struct {
	types.NamespacedName
	UID                 types.UID
	Created             time.Time
	Labels, Annotations map[string]string
	// Asked are the values of the addresses of type IPAddress that it asks for; an empty one means any.
	Asked []string
	// Ports are those on which the gateway serves it, as "80/TCP".
	Ports []string
	// Has are its own addresses by its status.
	Has []netip.Addr
}

// Decision is which addresses a Gateway gets.
type Decision struct {
	// Own says that it gets addresses of pools, which belong to it alone: Addresses, and no others. Otherwise it gets those of servers.
	Own       bool
	Addresses []netip.Addr
	// Problem says why addresses are missing, "" if none are. Asked says that they are ones that it asks for.
	Problem string
	Asked   bool
}

// GatewayAddresses is how two add-ons agree on the addresses of Gateways, in the process of a server: gateway says on each server which Gateways
// there are, servicelb decides on the server that leads, and gateway writes the decisions into the status of the Gateways, from where they
// come back as Has. On each server servicelb lets the gateways of servers announce what the Gateways have.
type GatewayAddresses struct {
	mu        sync.Mutex
	next      chan struct{} // closed by the next change
	pools     bool
	gateways  []Gateway
	known     bool
	decisions map[types.UID]Decision
}

// NewGatewayAddresses returns one for a server. Without pools all Gateways get addresses of servers; without the add-on gateway there are none.
func NewGatewayAddresses(pools, gateway bool) *GatewayAddresses {
	return &GatewayAddresses{pools: pools, known: !gateway, next: make(chan struct{})}
}

// Pools reports whether Gateways may get addresses of pools.
func (g *GatewayAddresses) Pools() bool { return g.pools }

// Next is closed by the next change of the Gateways or of a decision.
func (g *GatewayAddresses) Next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// SetGateways replaces the Gateways.
func (g *GatewayAddresses) SetGateways(all []Gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known && reflect.DeepEqual(all, g.gateways) {
		return
	}
	g.gateways, g.known = slices.Clone(all), true
	g.change()
}

// Gateways returns the Gateways; known is false until they have been set.
func (g *GatewayAddresses) Gateways() (all []Gateway, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gateways, g.known
}

// Decide replaces the decisions. Nil means that this server does not decide any more.
func (g *GatewayAddresses) Decide(all map[types.UID]Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reflect.DeepEqual(all, g.decisions) {
		return
	}
	g.decisions = all
	g.change()
}

// Decision returns the decision about a Gateway; decided is false while there is none, and its status has to stay as it is.
func (g *GatewayAddresses) Decision(gateway types.UID) (d Decision, decided bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pools {
		return Decision{}, true
	}
	d, decided = g.decisions[gateway]
	return d, decided
}

// change announces a change, under the lock.
func (g *GatewayAddresses) change() {
	close(g.next)
	g.next = make(chan struct{})
}
