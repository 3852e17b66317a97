package flannel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// overlayEvery is how often the interfaces of the overlay are looked at.
const overlayEvery = 5 * time.Second

// awaitOverlayGone waits until one of the interfaces is not there any more, or is another one of the same name, and ready says that they can be made again;
// then it returns an error. It returns nil when ctx is done. The kernel removes them with the interface under them, as when that is made anew. flannel makes
// flannel.1 again, but not its routes to other nodes, and flannel-v6.1 not at all (v0.28.10, watchVXLANDevice and reCreateVxlan in backend/vxlan): the node's
// process, which ends with this error, makes both when it starts again.
func awaitOverlayGone(ctx context.Context, ready func() bool, names ...string) error {
	first := indexes(names)
	for lifecycle.Sleep(ctx, overlayEvery) == nil {
		for i, now := range indexes(names) {
			if now != first[i] && now >= 0 && first[i] >= 0 && ready() {
				return fmt.Errorf("interface %s, the way to pods of other nodes, was removed", names[i])
			}
		}
	}
	return nil
}

// indexes are the numbers of interfaces: 0 for one that is not there, -1 if the kernel does not tell.
func indexes(names []string) []int {
	out := make([]int, len(names))
	for i, name := range names {
		link, err := netlink.LinkByName(name)
		switch {
		case err == nil:
			out[i] = link.Attrs().Index
		case !errors.As(err, new(netlink.LinkNotFoundError)):
			out[i] = -1
		}
	}
	return out
}
