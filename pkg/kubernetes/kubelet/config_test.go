package kubelet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/golden"
)

func example() Kubelet {
	return Kubelet{
		Name: "edge-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		Kubeconfig: "/var/lib/coracle/node/etc/kubelet.kubeconfig",
		ConfigFile: "/var/lib/coracle/node/etc/kubelet.yaml", DropIns: "/etc/coracle/kubelet.d",
		Root: "/var/lib/kubelet", PKI: "/var/lib/coracle/node/pki", ClientCA: "/var/lib/coracle/node/pki/ca.crt",
		StaticPods: "/var/lib/coracle/node/static-pods", CRISocket: "/run/coracle/containerd/containerd.sock",
		ClusterDNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}, Domain: "cluster.local", ResolvConf: "/etc/resolv.conf",
	}
}

func full() Kubelet {
	k := example()
	k.IPs = append(k.IPs, netip.MustParseAddr("2001:db8::10"))
	k.ClusterDNS = append(k.ClusterDNS, netip.MustParseAddr("fd43::a"))
	k.Labels = map[string]string{"zone": "a", "disk": "ssd"}
	k.Taints = []string{"dedicated=gpu:NoSchedule"}
	k.ExternalAddresses = true
	k.CgroupV2, k.SystemdCgroup, k.DelayShutdown = true, true, true
	k.Args = []string{"max-pods=50", "v=4"}
	k.Strict, k.ProtectKernel, k.Ciphers = true, true, config.Security{Hardened: true}.Ciphers()
	return k
}

func TestGolden(t *testing.T) {
	for name, k := range map[string]Kubelet{"default": example(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			file, err := k.render()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".yaml.golden", file)
			golden.Check(t, "testdata/"+name+".flags.golden", k.flags().String())
		})
	}
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestPrecedence(t *testing.T) {
	k := example()
	k.ConfigFile, k.DropIns = filepath.Join(t.TempDir(), "kubelet.yaml"), t.TempDir()
	k.Args = []string{"max-pods=30", "pod-max-pids=100"}
	write(t, filepath.Join(k.DropIns, "10.conf"), head+"maxPods: 10\nserializeImagePulls: true\nmaxParallelImagePulls: null\n")
	write(t, filepath.Join(k.DropIns, "20.yaml"), "# nothing yet\n")
	write(t, filepath.Join(k.DropIns, "30.txt"), "not ours")
	server, err := k.server()
	if err != nil {
		t.Fatal(err)
	}
	if server.MaxPods != 30 || server.PodPidsLimit != 100 {
		t.Errorf("flags do not win: maxPods %d, podPidsLimit %d", server.MaxPods, server.PodPidsLimit)
	}
	if !server.SerializeImagePulls {
		t.Error("the drop-in does not win over ours")
	}
	if server.ClusterDomain != "cluster.local" || server.FailCgroupV1 || server.FailSwapOn || server.Authentication.Anonymous.Enabled {
		t.Error("a drop-in for other settings lost ours")
	}
	if err := options.ValidateKubeletServer(server); err != nil {
		t.Error(err)
	}
}

func TestMistakes(t *testing.T) {
	tests := []struct{ name, dropIn, arg, err string }{
		{"no kind", "maxPods: 10\n", "", "apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration"},
		{"unknown setting", head + "maxPodz: 10\n", "", "maxPodz"},
		{"broken", head + "maxPods: [\n", "", "10.conf"},
		{"impossible value", head + "maxPods: -1\n", "", "maxPods"},
		{"unknown flag", "", "max-podz=1", "--kubelet-arg max-podz=1"},
		{"bad value", "", "max-pods=many", "--kubelet-arg max-pods=many"},
		{"config", "", "config=/x", "coracle's own"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := example()
			k.ConfigFile, k.DropIns = filepath.Join(t.TempDir(), "kubelet.yaml"), t.TempDir()
			if tt.dropIn != "" {
				write(t, filepath.Join(k.DropIns, "10.conf"), tt.dropIn)
			}
			if tt.arg != "" {
				k.Args = []string{tt.arg}
			}
			_, err := k.server()
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error that contains %q", err, tt.err)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
