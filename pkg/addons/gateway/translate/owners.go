package translate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Holder is the object of the Gateway API that has named a host for longest.
type Holder struct {
	Kind string
	types.NamespacedName
	Since time.Time
}

func (h Holder) String() string { return h.Kind + " " + h.NamespacedName.String() }

// Before reports whether it is older than another object. Those of the same second are ordered by their names, as by Older.
func (h Holder) Before(since time.Time, namespace, name string) bool {
	return cmp.Or(h.Since.Compare(since), strings.Compare(h.Namespace, namespace), strings.Compare(h.Name, name)) < 0
}

func (h Holder) olderThan(i *networkingv1.Ingress) bool {
	return h.Before(i.CreationTimestamp.Time, i.Namespace, i.Name)
}

// claim returns to whom a host belongs instead of an Ingress; "" if it may serve it. It gives the Ingress a host that nobody has, except below an older
// wildcard of another namespace, whose certificate it would be served with.
func (t *translation) claim(i *networkingv1.Ingress, host string) (other string) {
	_, parent, _ := strings.Cut(host, ".")
	owner, above := t.owners[host], t.owners["*."+parent]
	if owner == nil {
		if h, ok := t.held[host]; ok && h.olderThan(i) {
			return fmt.Sprintf("%s, which is older", h)
		}
		if owner = above; owner == nil || owner.Namespace == i.Namespace {
			t.owners[host], owner = i, i
		}
	}
	if owner.Namespace == i.Namespace {
		return ""
	}
	return fmt.Sprintf("namespace %s, which has an older Ingress for it", owner.Namespace)
}

// yield leaves hosts below wildcards of Ingresses to older objects of the Gateway API that name them, and tells the Ingresses, each of one.
func (t *translation) yield() {
	told := map[*networkingv1.Ingress]bool{}
	for _, host := range slices.Sorted(maps.Keys(t.held)) {
		h := t.held[host]
		_, parent, _ := strings.Cut(host, ".")
		i := t.owners["*."+parent]
		if i == nil || t.owners[host] != nil || !h.olderThan(i) {
			continue
		}
		t.Yields = append(t.Yields, host)
		if !told[i] {
			t.problem(i, "HostTaken", "host %s belongs to %s, which is older: this Ingress does not serve it with its wildcard", host, h)
		}
		told[i] = true
	}
	for n := range t.Config.Listeners {
		t.Config.Listeners[n].Yields = t.Yields
	}
}
