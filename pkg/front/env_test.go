package front

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

func TestProxyIsNotForTheCluster(t *testing.T) {
	cfg := config.Config{
		Network: config.Network{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112")},
			Domain:       "cluster.local",
		},
		Node: config.Node{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		API:  config.API{Advertise: netip.MustParseAddr("192.0.2.1")},
	}
	const ours = "127.0.0.0/8,::1,localhost,10.42.0.0/16,fd42::/48,10.43.0.0/16,fd43::/112,192.0.2.1,2001:db8::1,.svc,.cluster.local"
	localhostFirst := "localhost," + strings.Replace(ours, "localhost,", "", 1)
	for _, c := range []struct {
		name string
		have []string
		want []string // all variables about proxies but the proxies themselves
	}{
		{name: "no proxy"},
		{name: "an empty one", have: []string{"HTTP_PROXY="}},
		{name: "none, but exceptions", have: []string{"NO_PROXY=a"}, want: []string{"NO_PROXY=a"}},
		{name: "large letters", have: []string{"HTTPS_PROXY=http://p"}, want: []string{"NO_PROXY=" + ours, "no_proxy=" + ours}},
		{name: "small letters", have: []string{"http_proxy=http://p"}, want: []string{"NO_PROXY=" + ours, "no_proxy=" + ours}},
		{
			name: "exceptions",
			have: []string{"ALL_PROXY=http://p", "NO_PROXY=a, localhost,,a"},
			want: []string{"NO_PROXY=a," + localhostFirst, "no_proxy=a," + localhostFirst},
		},
		{
			name: "exceptions in small letters",
			have: []string{"HTTP_PROXY=http://p", "no_proxy=*"},
			want: []string{"NO_PROXY=*," + ours, "no_proxy=*," + ours},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range append(proxies, "no_proxy") {
				t.Setenv(name, "")
				t.Setenv(strings.ToUpper(name), "")
			}
			for _, e := range c.have {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			var got []string
			for _, e := range environment(cfg) {
				if name, value, _ := strings.Cut(e, "="); strings.EqualFold(name, "no_proxy") && value != "" {
					got = append(got, e)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("have %q,\nwant %q", got, c.want)
			}
		})
	}
}

// TestSecretsStay: child processes get no variable with a secret setting.
func TestSecretsStay(t *testing.T) {
	secrets := config.SecretVariables()
	for _, name := range []string{"CORACLE_TOKEN", "CORACLE_AGENT_TOKEN", "CORACLE_ETCD_S3_SECRET_KEY", "CORACLE_ETCD_S3_SESSION_TOKEN", "CORACLE_ETCD_S3_PROXY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		if !slices.Contains(secrets, name) {
			t.Errorf("%s is no secret", name)
		}
	}
	for _, name := range append(secrets, "HARMLESS") {
		t.Setenv(name, "hush")
	}
	got := slices.DeleteFunc(environment(config.Config{}), func(e string) bool { return !strings.HasSuffix(e, "=hush") })
	if !slices.Equal(got, []string{"HARMLESS=hush"}) {
		t.Errorf("child processes get %q", got)
	}
}
