package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// services connects to the API as pods do: by the address of its Service, which kube-proxy's rules translate.
func (d *Doctor) services(ctx context.Context) []check.Verdict {
	if d.Config.Disabled("kube-proxy") {
		return check.Skipf("another program provides Services (--disable=kube-proxy)")
	}
	const fix = "check servers, because a connection goes to any of them; then check components (kube-proxy) and check firewall"
	address := net.JoinHostPort(d.apiService().String(), "443")
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	began := time.Now()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the server need not be authenticated
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if _, noAPI := d.nodes(); err != nil && noAPI != nil {
		return check.Skipf("no server answers behind the Service of the API, see check api")
	}
	if err != nil {
		return check.Failf(fix, "the Service of the API (%s) cannot be reached: %s", address, short(err))
	}
	conn.Close()
	return check.Okf("%s answers in %s", address, time.Since(began).Round(time.Millisecond))
}

// peer is the pod network of another node.
type peer struct {
	node    string
	remark  string
	ip      netip.Addr // the node's own
	gateway netip.Addr // the node's address in its pod network
}

func (d *Doctor) podNetwork(ctx context.Context) []check.Verdict {
	if d.Config.Network.Backend == config.BackendNone {
		return check.Skipf("another plugin provides the pod network")
	}
	peers, from := d.peers()
	if len(peers) == 0 {
		return check.Okf("there is no other node%s", from)
	}
	sizes := map[bool]int{}
	for _, v6 := range []bool{false, true} {
		var err error
		if sizes[v6], err = podMTU(v6); err != nil {
			return check.Failf("check components (flannel)", "this node has no pod network: %v", err)
		}
	}
	results := make([]pathResult, len(peers))
	atOnce(4*manyNodes, len(peers), func(i int) {
		results[i] = tryPath(ctx, peers[i].gateway, sizes[peers[i].gateway.Is6()])
	})
	var out []check.Verdict
	for i, p := range peers {
		out = append(out, judgePath(p, results[i], sizes[p.gateway.Is6()], d.Config.Network.Backend)...)
	}
	return check.Else(first(out, 10), check.Okf("the pods of %d other nodes are reached, with packets of %d bytes%s", others(peers), sizes[peers[0].gateway.Is6()], from))
}

// peers returns the other nodes according to the API, or to the kernel's routes if the API does not answer.
func (d *Doctor) peers() (all []peer, from string) {
	nodes, err := d.nodes()
	if err != nil {
		return d.routedPeers(), " (by the routes of this machine: the API does not answer)"
	}
	for _, n := range nodes {
		if n.Name == d.Config.Node.Name {
			continue
		}
		all = append(all, peersOf(n)...)
	}
	return all, ""
}

// others counts nodes, each of which may have a network of each family.
func others(peers []peer) int {
	names := map[string]bool{}
	for _, p := range peers {
		names[p.node] = true
	}
	return len(names)
}

// peersOf returns a node's pod networks; none before it has been assigned one.
func peersOf(n corev1.Node) (all []peer) {
	var own netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && !own.IsValid() {
			own = ip
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			all = append(all, peer{node: n.Name, remark: notReady(n), ip: own, gateway: podsubnet.Gateway(cidr).Addr()})
		}
	}
	return all
}

// routedPeers returns the networks of other nodes according to the routes that flannel has made.
func (d *Doctor) routedPeers() (all []peer) {
	routes, _ := netlink.RouteList(nil, netlink.FAMILY_ALL) // an incomplete list is better than none
	for _, r := range routes {
		if r.Dst == nil || r.Gw == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		gw, _ := netip.AddrFromSlice(r.Gw)
		ours := slices.ContainsFunc(d.Config.Network.ClusterCIDRs, func(c netip.Prefix) bool { return c.Contains(ip.Unmap()) })
		if ok && ours {
			cidr := netip.PrefixFrom(ip.Unmap(), bits)
			all = append(all, peer{node: "with pods in " + cidr.String(), ip: gw.Unmap(), gateway: podsubnet.Gateway(cidr).Addr()})
		}
	}
	return all
}

// podMTU returns the size of packets of an address family between the pods of different nodes.
func podMTU(v6 bool) (int, error) {
	overlays := []string{footprint.VXLAN, footprint.WireGuard}
	if v6 {
		overlays = []string{footprint.VXLAN6, footprint.WireGuard6}
	}
	for _, name := range append(overlays, footprint.Bridge) {
		if link, err := netlink.LinkByName(name); err == nil {
			return link.Attrs().MTU, nil
		}
	}
	return 0, fmt.Errorf("there is neither %s nor %s", strings.Join(overlays, " nor "), footprint.Bridge)
}

// pathResult has the errors of small packets and of packets of full size to a node's pods, and of a query to its name server,
// which is used where a firewall drops pings.
type pathResult struct{ small, full, name error }

func tryPath(ctx context.Context, to netip.Addr, size int) (r pathResult) {
	var tries sync.WaitGroup
	tries.Go(func() { r.small = ping(ctx, to, 64) })
	tries.Go(func() { r.full = ping(ctx, to, size) })
	tries.Go(func() { r.name = check.AskName(ctx, netip.AddrPortFrom(to, clusterdns.Port), ".") })
	tries.Wait()
	return r
}

func judgePath(p peer, r pathResult, size int, backend config.Backend) []check.Verdict {
	way := "udp port 8472 must be open between nodes"
	switch backend {
	case config.HostGW:
		way = "with host-gw all nodes must be in one network segment"
	case config.WireGuard:
		way = "udp ports 51820 (IPv4) and 51821 (IPv6) must be open between nodes"
	}
	switch {
	case r.small != nil && r.name != nil:
		return check.Failf(fmt.Sprintf("check whether %s is up and reachable (ping %s), and the firewalls: %s; run coracle doctor there", p.node, p.ip, way),
			"the pods of node %s%s cannot be reached from here: %s does not answer (%v)", p.node, p.remark, p.gateway, r.small)
	case r.small != nil:
		return check.Okf("the pods of node %s are reached; pings are not answered, so packets of full size were not tested", p.node)
	case r.full != nil:
		return check.Failf(fmt.Sprintf("set the MTU of the nodes' interfaces to what the network between them supports (ping -M do -s SIZE %s), and restart coracle", p.ip),
			"packets of %d bytes do not come through to the pods of node %s, small ones do: %v", size, p.node, r.full)
	}
	return nil
}

// pings is the number of attempts, and pingTimeout the time limit of each.
const (
	pings       = 3
	pingTimeout = 700 * time.Millisecond
)

// ping sends an echo request in a packet of the given size, which must not be fragmented, and waits for the reply.
func ping(ctx context.Context, to netip.Addr, size int) (err error) {
	for range pings {
		if err = pingOnce(ctx, to, size); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func pingOnce(ctx context.Context, to netip.Addr, size int) error {
	p := echo4
	if to.Is6() {
		p = echo6
	}
	conn, err := p.open(ctx, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	id := (os.Getpid() ^ size) & 0xffff
	request, err := p.message(id, size)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(pingTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) {
			return errno
		}
		return err
	}
	answer := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFrom(answer) // without the IP header, which Read would include
		if err != nil {
			return errors.New("no answer in time")
		}
		if p.answers(answer[:n], id) {
			return nil
		}
	}
}
