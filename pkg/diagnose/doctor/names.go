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

// apiService returns the address of the API's Service.
func (d *Doctor) apiService() netip.Addr {
	return d.Config.Network.ServiceCIDRs[0].Masked().Addr().Next()
}

// dnsListens returns the addresses of this node's name server; none before the node has a pod network.
func (d *Doctor) dnsListens() []netip.AddrPort {
	subnet, _ := podsubnet.Read(d.Config.Dirs.Subnet()) // without a file nothing listens
	return clusterdns.Listen(d.Config.Network.Backend, subnet.PodCIDRs, d.Config.Node.IPs)
}

func (d *Doctor) dns(ctx context.Context) []check.Verdict {
	if d.Config.Disabled("dns") {
		return check.Skipf("DNS is disabled (--disable=dns)")
	}
	var report clusterdns.Status
	var out []check.Verdict
	if d.detail(clusterdns.ReportKey, &report) && report.Error != "" {
		out = append(out, check.Warnf("coracle kubectl -n kube-system edit configmap coredns", "the Corefile in ConfigMap kube-system/coredns is not in use: %s", report.Error)...)
	}
	listens := d.dnsListens()
	if len(listens) == 0 {
		return append(out, check.Failf("see check components for what flannel waits for", "this node has no pod network yet, and so no name server")...)
	}
	name := "kubernetes.default.svc." + d.Config.Network.Domain
	for _, l := range listens {
		out = append(out, d.judgeName(ctx, l, name, "this node's name server")...)
	}
	if len(d.Config.Network.DNS) > 0 && !d.Config.Disabled("kube-proxy") && len(out) == 0 {
		out = append(out, d.judgeName(ctx, netip.AddrPortFrom(d.Config.Network.DNS[0], 53), name, "the DNS Service")...)
	}
	outside := "there is no name server for names outside"
	if len(report.Upstreams) > 0 {
		outside = "and for names outside by asking " + strings.Join(report.Upstreams, ", ")
		if err := d.outside(ctx, listens[0]); err != nil {
			out = append(out, check.Warnf("check name-servers and check dns-loop; without Internet access this is normal",
				"names outside the cluster do not resolve: %v (asked of %s)", err, strings.Join(report.Upstreams, ", "))...)
		}
	}
	return check.Else(out, check.Okf("answers for names in the cluster, %s", outside))
}

// outside asks one of coracle's name servers for a name that it has to forward. That the name does not exist is an answer too.
func (d *Doctor) outside(ctx context.Context, server netip.AddrPort) error {
	_, err := check.Resolve(ctx, server, ".", false)
	var refused check.Refused
	if errors.As(err, &refused) && refused == check.NoName {
		return nil
	}
	return err
}

// judgeName asks one of coracle's name servers for the API's Service.
func (d *Doctor) judgeName(ctx context.Context, server netip.AddrPort, name, what string) []check.Verdict {
	found, err := check.Resolve(ctx, server, name, d.apiService().Is6())
	want := d.apiService()
	switch {
	case err != nil:
		return check.Failf("check components, and coracle logs --component dns", "%s (%s) does not resolve %s: %v", what, server, name, err)
	case !slices.Contains(found, want):
		return check.Failf("coracle logs --component dns; your own Corefile may answer instead", "%s (%s) resolves %s to %v, and not to %s", what, server, name, found, want)
	}
	return nil
}

// dnsLoop finds name servers that forward to the cluster's DNS what it forwards to them. Forwarding only the cluster's own
// names to it is fine.
func (d *Doctor) dnsLoop(ctx context.Context) []check.Verdict {
	var report clusterdns.Status
	if !d.detail(clusterdns.ReportKey, &report) || len(report.Upstreams) == 0 {
		return check.Skipf("the cluster's DNS forwards to no name server")
	}
	var asked []string
	for _, u := range report.Upstreams {
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
			return check.Failf("name another server in "+d.Config.Node.ResolvConf+", or let it forward only "+d.Config.Network.Domain+" to the cluster",
				"the name server %s, which the cluster's DNS asks, asks the cluster's DNS: a loop, so that no name outside the cluster resolves", u)
		}
	}
	return check.Okf("%s does not forward to the cluster's DNS", strings.Join(asked, ", "))
}
