package localcluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// linkName is the interface of this machine in a cluster's network, at most 15 bytes.
func linkName(cluster string) string {
	if len(cluster) <= 11 {
		return "cor-" + cluster
	}
	return fmt.Sprintf("cor-%x", sha256.Sum256([]byte(cluster)))[:15]
}

// network connects the nodes with each other and with this machine. The kernel removes all of it with the holder.
type network struct {
	wire *nshost.Wire
	nft  int // PID of the process that owns the cluster's nft table
}

// makeNetwork makes the nodes' bridge and its link to this machine, and lets the nodes reach what this machine reaches.
func (h *holder) makeNetwork() error {
	r := h.record
	ns, err := nshost.NewNetNS()
	if err != nil {
		return err
	}
	wire, err := nshost.NewWire(ns, netip.PrefixFrom(r.Wire(), r.Network.Bits()))
	if err != nil {
		return err
	}
	if err := connectMachine(r, wire); err != nil {
		return err
	}
	owner, err := masquerade(r)
	if err != nil {
		return err
	}
	h.net = &network{wire: wire, nft: owner}
	if err := openFirewall(r); err != nil {
		return fmt.Errorf("letting the nodes' packets through this machine's firewall: %w", err)
	}
	return nil
}

// connectMachine connects this machine with the nodes' bridge.
func connectMachine(r Record, wire *nshost.Wire) error {
	own, err := os.Open("/proc/thread-self/ns/net") // the main thread may be in another namespace
	if err != nil {
		return err
	}
	defer own.Close()
	if err := wire.Plug("machine", own, r.Link); err != nil {
		return err
	}
	link, err := netlink.LinkByName(r.Link)
	if err != nil {
		return fmt.Errorf("finding interface %s: %w", r.Link, err)
	}
	ip := &net.IPNet{IP: r.Machine().AsSlice(), Mask: net.CIDRMask(r.Network.Bits(), 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("adding address %s to interface %s: %w", r.Machine(), r.Link, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting interface %s up: %w", r.Link, err)
	}
	return nil
}

// removeLink removes the interface if it exists: the kernel removes it some time after the bridge's namespace.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing interface %s: %w", name, err)
	}
	return nil
}

// masquerade makes the cluster's nft table, which masquerades the nodes' traffic, because other machines have no route to them. It returns the
// PID of an nft process that owns the table and runs as long as the holder: the kernel removes the table with its owner, and "nft flush
// ruleset" does not remove it. A kernel before 5.12 knows no owners of tables; then removeRules removes the table.
func masquerade(r Record) (pid int, err error) {
	if pid, err = startNFT(r, "flags owner; "); err != nil {
		pid, err = startNFT(r, "")
	}
	return pid, err
}

// startNFT starts an nft process that makes the table with the given flags.
func startNFT(r Record, flags string) (pid int, err error) {
	program := filepath.Join(r.Payload, "nft")
	if !paths.Exists(program) { // the build has no payload
		program = "nft"
	}
	cmd := exec.Command(program, "-i")
	cmd.Env = []string{"HOME=/dev/null"} // in HOME nft writes a history file
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	cmd.Stderr = cmd.Stdout
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(in, "table ip %[1]s { %[2]schain postrouting { type nat hook postrouting priority srcnat; ip saddr %[3]s oifname != %[4]q masquerade; }; }\n"+
		"list table ip %[1]s\n", r.table(), flags, r.Network, r.Link)
	reply := ""
	for lines := bufio.NewScanner(out); !strings.Contains(reply, "masquerade") && !strings.Contains(reply, "Error") && lines.Scan(); {
		reply = lines.Text()
	}
	go func() { // nft runs until this process ends, because in stays open
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		release()
	}()
	if !strings.Contains(reply, "masquerade") {
		in.Close()
		return 0, fmt.Errorf("making nft table %s: nft says %q", r.table(), reply)
	}
	return cmd.Process.Pid, nil
}

// openFirewall lets the nodes' packets through the forward chains of this machine whose policy is drop, as Docker's is.
func openFirewall(r Record) error {
	gate := &nft.Gate{
		Networks: []netip.Prefix{r.Network}, Comment: r.table(),
		Note: func(string) error { return nil }, Opened: func(string) {}, // removeRules finds the rules by their comment
	}
	return gate.Open()
}

// removeRules removes the cluster's nft table, if the kernel has not removed it with its owner or the owner is still ending, and the rules
// of openFirewall.
func removeRules(r Record) error {
	errTable := nshost.Retry(func() error {
		tables, err := nft.Tables()
		if i := slices.IndexFunc(tables, func(t nft.Table) bool { return t.Name == "ip "+r.table() }); i >= 0 {
			err = tables[i].Delete()
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing nft table %s: %w", r.table(), err)
		}
		return nil
	})
	chains, err := nft.Chains()
	errs := []error{errTable, err}
	for _, c := range chains {
		if c.Forwards() {
			errs = append(errs, c.DeleteMarked(r.table()))
		}
	}
	return errors.Join(errs...)
}

// errNoFreeNetwork is returned if this machine uses all networks for clusters.
var errNoFreeNetwork = errors.New("no network is free for the nodes: this machine has routes into, or clusters in, all of " +
	clusterNetworks + "; remove a cluster with coracle down")

// clusterNetworks is the range for the networks of clusters, a /24 each.
const clusterNetworks = "10.222.0.0/16"

// freeNetwork returns a network that neither this machine nor another cluster uses.
func freeNetwork(others []Record) (netip.Prefix, error) {
	taken, err := routes()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, o := range others {
		taken = append(taken, o.Network)
	}
	return firstFree(taken)
}

// shortestRoute is the length of the prefixes that count as networks in use. Shorter ones lead everywhere, as the default route: VPNs put 0.0.0.0/1 and
// 128.0.0.0/1 in its place (redirect-gateway def1 of OpenVPN).
const shortestRoute = 8

// firstFree returns the first /24 of clusterNetworks that overlaps none of the taken networks.
func firstFree(taken []netip.Prefix) (netip.Prefix, error) {
	base := netip.MustParsePrefix(clusterNetworks).Addr().As4()
next:
	for i := range 256 {
		base[2] = byte(i)
		p := netip.PrefixFrom(netip.AddrFrom4(base), 24)
		for _, t := range taken {
			if t.Bits() >= shortestRoute && t.Overlaps(p) {
				continue next
			}
		}
		return p, nil
	}
	return netip.Prefix{}, errNoFreeNetwork
}

// routes returns the destinations of this machine's routes.
func routes() (out []netip.Prefix, err error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("listing this machine's routes: %w", err)
	}
	for _, r := range found {
		if r.Dst == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if ok {
			out = append(out, netip.PrefixFrom(ip, bits))
		}
	}
	return out, nil
}

// balance serves the API of several servers at one address, the bridge's.
func (h *holder) balance(ctx context.Context) error {
	servers := h.record.servers()
	if len(servers) == 1 {
		return nil
	}
	var listener net.Listener
	err := h.net.wire.On(func() (err error) {
		listener, err = net.Listen("tcp", h.record.API().String())
		return err
	})
	if err != nil {
		return fmt.Errorf("listening for the API's clients: %w", err)
	}
	o := tcpbalancer.Options{TLS: h.apiTLS}
	for _, s := range servers {
		o.Listed = append(o.Listed, netip.AddrPortFrom(s.IP, apiPort).String())
	}
	go func() {
		if err := tcpbalancer.New(o).Serve(ctx, listener); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "balancing the API:", err)
		}
	}()
	return nil
}

// apiTLS trusts the cluster's servers.
func (h *holder) apiTLS() (*tls.Config, error) {
	dirs := paths.Dirs{Data: h.store.host(h.record.Name, h.record.Nodes[0].Name, "data")}
	data, err := os.ReadFile(dirs.PKI() + "/ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("the cluster's CA certificate is damaged")
	}
	return &tls.Config{RootCAs: pool, ServerName: "kubernetes", MinVersion: tls.VersionTLS12}, nil
}
