package translate

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxHosts bounds the hosts of a certificate, because each order of it has them all validated.
const maxHosts = 20

// Orders collects the certificates that are wanted by ACME. All claims have to be known before the first certificate is added: no certificate is
// asked for a host that another namespace has, because the gateway answers for all hosts that lead to it.
type Orders struct {
	claims map[string]claim
	all    map[types.NamespacedName]*Wanted
	asked  map[[2]string]struct{} // by namespace and host
}

// Wanted is a certificate that is to be had from an ACME server.
type Wanted struct {
	Secret types.NamespacedName
	Hosts  []string // sorted
	// Owners are the objects that ask for it, the oldest one first.
	Owners []corev1.ObjectReference
	// Addresses are those that the owners have for themselves, to which the hosts lead.
	Addresses []netip.Addr
	// Issuer and Leaf are those of the certificate in the Secret; "" and nil if there is none.
	Issuer string
	Leaf   *x509.Certificate
}

// claim says which namespace has a host, and since when, and which others may ask for its certificate.
type claim struct {
	namespace string
	since     time.Time
	also      []string
}

func (c claim) before(other claim) bool {
	return cmp.Or(c.since.Compare(other.since), strings.Compare(c.namespace, other.namespace)) < 0
}

// NewOrders returns one without claims and certificates.
func NewOrders() *Orders {
	return &Orders{claims: map[string]claim{}, all: map[types.NamespacedName]*Wanted{}, asked: map[[2]string]struct{}{}}
}

// Claim says that an object of a namespace, which was created at that time, names a host, or "*." and a name for one more label, or "." and a name for any number
// of them. The oldest claim counts. Those also named may ask for the certificate too.
func (o *Orders) Claim(host, namespace string, created time.Time, also ...string) {
	c := claim{namespace, created, also}
	if other, ok := o.claims[host]; !ok || c.before(other) {
		o.claims[host] = c
	}
}

// owner returns the oldest claim of a host itself, or of a wildcard that serves it too: nobody gets the certificate of what another namespace has served for
// longer.
func (o *Orders) owner(host string) (best claim) {
	_, parent, more := strings.Cut(host, ".")
	names := []string{host, "*." + parent}
	for ; more; _, parent, more = strings.Cut(parent, ".") {
		names = append(names, "."+parent)
	}
	for _, name := range names {
		if c, ok := o.claims[name]; ok && (best.namespace == "" || c.before(best)) {
			best = c
		}
	}
	return best
}

// Add adds hosts to the certificate of a Secret that an object wants, which has addresses for itself if it names some, and returns why it has not added some.
// The Secret has the certificate has, the zero value if there is none.
func (o *Orders) Add(by corev1.ObjectReference, addresses []netip.Addr, secret types.NamespacedName, has Certificate, hosts []string) (refused []string) {
	w := o.all[secret]
	if w == nil {
		w = &Wanted{Secret: secret, Issuer: has.Issuer, Leaf: has.Leaf}
	}
	for _, host := range hosts {
		_, asked := o.asked[[2]string{secret.Namespace, host}]
		owner := o.owner(host)
		switch {
		case owner.namespace != secret.Namespace && !slices.Contains(owner.also, secret.Namespace):
			refused = append(refused, fmt.Sprintf("host %s belongs to namespace %s, which has an older object for it: no certificate is asked for it", host, owner.namespace))
		case asked: // for this Secret, or another one of the namespace
		case strings.HasPrefix(host, "*."):
			refused = append(refused, fmt.Sprintf("host %s is a wildcard, for which ACME servers want a record in DNS (DNS-01), and coracle makes none: name the hosts, or make Secret %s yourself", host, secret))
		case len(w.Hosts) == maxHosts:
			refused = append(refused, fmt.Sprintf("Secret %s is for more than %d hosts: host %s needs another one, with a tls entry of its own", secret, maxHosts, host))
		default:
			o.asked[[2]string{secret.Namespace, host}] = struct{}{}
			w.Hosts = append(w.Hosts, host)
		}
	}
	if len(w.Hosts) > 0 {
		slices.Sort(w.Hosts)
		if !slices.ContainsFunc(w.Owners, func(r corev1.ObjectReference) bool { return r.UID == by.UID }) {
			w.Owners, w.Addresses = append(w.Owners, by), append(w.Addresses, addresses...)
		}
		o.all[secret] = w
	}
	return refused
}

// List returns what is wanted, sorted by Secret.
func (o *Orders) List() (out []Wanted) {
	if o == nil {
		return nil
	}
	for _, w := range o.all {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b Wanted) int { return strings.Compare(a.Secret.String(), b.Secret.String()) })
	return out
}
