package flannel

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// overlayEvery is how often the interfaces of the overlay are looked at.
const overlayEvery = 5 * time.Second

// awaitOverlayGone waits until one of the interfaces is not there any more, or is another one of the same name, and says so; it returns nil when ctx is
// done. The kernel removes them with the interface under them, as when that is made anew. flannel makes flannel.1 again, but not its routes to other nodes,
// and flannel-v6.1 not at all (v0.28.10, watchVXLANDevice and reCreateVxlan in backend/vxlan): the node's process, which ends with this error, makes both when
// it starts again, on the interface that is there then.
func awaitOverlayGone(ctx context.Context, names ...string) error {
	first := indexes(names)
	for lifecycle.Sleep(ctx, overlayEvery) == nil {
		for i, now := range indexes(names) {
			if now != first[i] {
				return fmt.Errorf("interface %s, the way to pods of other nodes, was removed", names[i])
			}
		}
	}
	return nil
}

// indexes are the numbers of interfaces, 0 for those that are not there.
func indexes(names []string) []int {
	out := make([]int, len(names))
	for i, name := range names {
		if link, err := netlink.LinkByName(name); err == nil {
			out[i] = link.Attrs().Index
		}
	}
	return out
}
