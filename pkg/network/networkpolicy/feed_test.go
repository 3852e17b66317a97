package networkpolicy

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestRecreatedPod: a pod that was deleted and made again while the watch was away is told of as a change. What the old
// one was as a peer ends with it.
func TestRecreatedPod(t *testing.T) {
	b := newBench(t)
	pods := handler(b.replacePod, b.removePod)
	old, again := podOf("x", "a", nil, false, nil, "10.42.1.2"), podOf("x", "a", nil, false, nil, "10.42.1.3")
	again.UID = podKey("x", "a", "again")
	addresses := func(want ...string) {
		t.Helper()
		known := b.engine.table.sets["pods4"].elems
		for _, addr := range want {
			if _, ok := known[elem{a: podOf("", "", nil, false, nil, addr).addrs[0]}]; !ok {
				t.Errorf("%s is not known", addr)
			}
		}
		if len(known) != len(want) || len(b.engine.pods) != len(want) {
			t.Errorf("known are the addresses %v of %d pods, want %v", known, len(b.engine.pods), want)
		}
	}
	pods.OnAdd(old, true)
	addresses("10.42.1.2")
	pods.OnUpdate(old, again)
	addresses("10.42.1.3")
	pods.OnUpdate(again, again)
	addresses("10.42.1.3")
	pods.OnDelete(cache.DeletedFinalStateUnknown{Obj: again})
	addresses()
}
