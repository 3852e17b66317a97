package doctor

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// apiService is the address of the API's Service.
func (d *Doctor) apiService() netip.Addr {
	return d.Config.Network.ServiceCIDRs[0].Masked().Addr().Next()
}

// dnsListens returns the addresses of this node's name server, if the node knows its pod network.
func (d *Doctor) dnsListens() []netip.AddrPort {
	subnet, _ := podsubnet.Read(d.Config.Dirs.Subnet()) // without a file nothing listens
	return clusterdns.Listen(d.Config.Network.Backend, subnet.PodCIDRs, d.Config.Node.IPs)
}

func (d *Doctor) dns(ctx context.Context) []check.Verdict {
	if d.Config.Disabled("dns") {
		return check.Skipf("DNS is switched off (--disable=dns)")
	}
	var told clusterdns.Status
	var out []check.Verdict
	if d.detail(clusterdns.ReportKey, &told) && told.Error != "" {
		out = append(out, check.Warnf("coracle kubectl -n kube-system edit configmap coredns", "the Corefile in ConfigMap kube-system/coredns is not in use: %s", told.Error)...)
	}
	listens := d.dnsListens()
	if len(listens) == 0 {
		return append(out, check.Failf("check components says what flannel waits for", "this node has no pod network yet, and so no name server")...)
	}
	name := "kubernetes.default.svc." + d.Config.Network.Domain
	for _, l := range listens {
		out = append(out, d.judgeName(ctx, l, name, "this node's name server")...)
	}
	if len(d.Config.Network.DNS) > 0 && !d.Config.Disabled("kube-proxy") && len(out) == 0 {
		out = append(out, d.judgeName(ctx, netip.AddrPortFrom(d.Config.Network.DNS[0], 53), name, "the DNS Service")...)
	}
	outside := "there is no name server for names outside"
	if len(told.Upstreams) > 0 {
		outside = "and for names outside with the help of " + strings.Join(told.Upstreams, ", ")
		if err := d.outside(ctx, listens[0]); err != nil {
			out = append(out, check.Warnf("check name-servers and check dns-loop; without the Internet nothing has to be done",
				"names outside the cluster do not resolve: %v (asked of %s)", err, strings.Join(told.Upstreams, ", "))...)
		}
	}
	return check.Else(out, check.Okf("answers for names in the cluster, %s", outside))
}

// outside asks the cluster's name server for an external name. The answer that there is no such name is an answer too.
func (d *Doctor) outside(ctx context.Context, server netip.AddrPort) error {
	_, err := check.Resolve(ctx, server, ".", false)
	var refused check.Refused
	if errors.As(err, &refused) && refused == check.NoName {
		return nil
	}
	return err
}

// judgeName asks the cluster's name server for the API's Service.
func (d *Doctor) judgeName(ctx context.Context, server netip.AddrPort, name, what string) []check.Verdict {
	found, err := check.Resolve(ctx, server, name, d.apiService().Is6())
	want := d.apiService()
	switch {
	case err != nil:
		return check.Failf("check components, and coracle logs --component dns", "%s (%s) does not resolve %s: %v", what, server, name, err)
	case !slices.Contains(found, want):
		return check.Failf("coracle logs --component dns; a Corefile of your own may answer instead", "%s (%s) says that %s is %v, and not %s", what, server, name, found, want)
	}
	return nil
}

// dnsLoop looks for name servers that know the cluster's names because they forward to the cluster's DNS. That is
// correct for these names only; if they forward all queries that they get from it, no name resolves.
func (d *Doctor) dnsLoop(ctx context.Context) []check.Verdict {
	var told clusterdns.Status
	if !d.detail(clusterdns.ReportKey, &told) || len(told.Upstreams) == 0 {
		return check.Skipf("the cluster's DNS has no name servers to forward to")
	}
	var asked []string
	for _, u := range told.Upstreams {
		ip, err := netip.ParseAddr(u)
		if err != nil {
			continue
		}
		asked = append(asked, u)
		found, err := check.Resolve(ctx, netip.AddrPortFrom(ip, 53), "kubernetes.default.svc."+d.Config.Network.Domain, d.apiService().Is6())
		if err != nil || !slices.Contains(found, d.apiService()) {
			continue
		}
		var refused check.Refused
		if _, err := check.Resolve(ctx, netip.AddrPortFrom(ip, 53), ".", false); errors.As(err, &refused) {
			return check.Failf("name another server in "+d.Config.Node.ResolvConf+", or have that one forward nothing but "+d.Config.Network.Domain+" to the cluster",
				"the name server %s, which the cluster's DNS asks, asks the cluster's DNS: a loop, and no name outside the cluster resolves", u)
		}
	}
	return check.Okf("%s does not ask the cluster's DNS back", strings.Join(asked, ", "))
}
