package controllermanager

import (
	"net/netip"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/coracle-dev/coracle/test/golden"
)

func cidrs(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		cluster, service []netip.Prefix
		args             []string
	}{
		"plain": {cidrs("10.42.0.0/16"), cidrs("10.43.0.0/16"), nil},
		"dual":  {cidrs("10.42.0.0/16", "fd00:42::/56"), cidrs("10.43.0.0/16", "fd00:43::/112"), nil},
		"ipv6":  {cidrs("fd00:42::/56"), cidrs("fd00:43::/112"), nil},
		"large": {cidrs("10.0.0.0/8", "fd00::/40"), cidrs("172.30.0.0/16", "fd01:43::/112"), nil},
		"small": {cidrs("10.42.0.0/25"), cidrs("10.43.0.0/24"), nil},
		"args":  {cidrs("10.42.0.0/16"), cidrs("10.43.0.0/16"), []string{"node-monitor-grace-period=20s", "secure-port=10257"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := ControllerManager{Kubeconfig: "/var/lib/coracle/server/etc/controller-manager.kubeconfig",
				CA: "/var/lib/coracle/server/pki/ca.crt", Signer: "/var/lib/coracle/server/pki/ca-signer.crt", CAKey: "/var/lib/coracle/server/pki/ca.key", CertificateLife: 24 * time.Hour,
				ServiceAccountKey: "/var/lib/coracle/server/pki/sa.key", VolumePlugins: "/var/lib/coracle/server/volume-plugins", Args: c.args}
			m.Network.ClusterCIDRs, m.Network.ServiceCIDRs = c.cluster, c.service
			golden.Check(t, "testdata/"+name+".golden", m.flags().String())

			opts, err := options.NewKubeControllerManagerOptions()
			if err != nil {
				t.Fatal(err)
			}
			known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
			if err := m.flags().Parse("kube-controller-manager", opts.Flags(known, disabled, aliases)); err != nil {
				t.Fatal(err)
			}
			if err := opts.Validate(known, disabled, aliases); err != nil {
				t.Error(err)
			}
		})
	}
}
