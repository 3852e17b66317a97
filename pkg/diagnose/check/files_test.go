package check

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// stat are the fields of /proc/PID/stat behind the name.
const stat = " S 1 1 1 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 777 0 0"

func TestFiles(t *testing.T) {
	var u unix.Utsname
	_ = unix.Uname(&u)
	modulesDir := "/lib/modules/" + unix.ByteSliceToString(u.Release[:])
	tests := []struct {
		name  string
		run   func(context.Context, *Machine) []Verdict
		files map[string]string
		want  Result
		texts []string
	}{
		{"no modules at all", modules, nil, OK, []string{"no loadable modules"}},
		{"kernel was replaced", modules, map[string]string{"/proc/modules": "overlay 1 0 - Live 0x0\n"}, Warn, []string{"reboot"}},
		{"some are missing", modules, map[string]string{
			modulesDir + "/modules.dep":     "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/bridge/bridge.ko: a b\nkernel/net/bridge/br-netfilter.ko:\n",
			modulesDir + "/modules.builtin": "kernel/drivers/net/veth.ko\nkernel/net/netfilter/nf_tables.ko\n",
			"/sys/module/nf_conntrack/x":    "", "/sys/module/nf_nat/x": "", "/sys/module/nft_masq/x": "", "/sys/module/nft_fib/x": "",
		}, Warn, []string{"no modules vxlan;", "linux-modules-extra"}},
		{"no br_netfilter", bridgeNetfilter, nil, Warn, []string{"modprobe br_netfilter"}},
		{"br_netfilter can be loaded", bridgeNetfilter, map[string]string{modulesDir + "/modules.dep": "kernel/net/bridge/br_netfilter.ko:"}, OK, []string{"not loaded yet"}},
		{"seccomp", seccomp, map[string]string{"/proc/sys/kernel/seccomp/actions_avail": "kill errno allow"}, OK, nil},
		{"no seccomp", seccomp, nil, Fail, nil},
		{"SELinux", securityModules, map[string]string{"/sys/fs/selinux/enforce": "1"}, Warn, []string{"ausearch"}},
		{"AppArmor", securityModules, map[string]string{"/sys/module/apparmor/parameters/enabled": "Y"}, Warn, []string{"install the package apparmor"}},
		{"neither", securityModules, nil, OK, nil},
		{"no forwarding, no way", forwarding, nil, Fail, []string{"no IPv4"}},
		{"forwarding", forwarding, map[string]string{"/proc/sys/net/ipv4/ip_forward": "1\n"}, OK, []string{"IPv4 is on"}},
		{"forwarding is made", forwarding, map[string]string{"/proc/sys/net/ipv4/ip_forward": "0\n"}, OK, []string{"enables it"}},
		{"sysctls", sysctls, map[string]string{"/proc/sys/fs/inotify/max_user_instances": "128\n"}, OK, nil},
		{"kubelet of others", otherKubernetes, map[string]string{"/proc/7/stat": "7 (kubelet)" + stat, "/proc/8/stat": "8 (sh)" + stat, "/proc/net/x": ""}, OK, nil}, // its network is not known
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.run(t.Context(), machine(t, tt.files)), tt.want, tt.texts...) })
	}
}

// TestSeccompAtStart: a server does not start if none of its pods would.
func TestSeccompAtStart(t *testing.T) {
	m := machine(t, nil)
	m.starting = true
	fine(t, seccomp(t.Context(), m))
	m.Config.Security.Hardened = true
	expect(t, seccomp(t.Context(), m), Fail, "no seccomp filters", "--hardened=false")
}

func TestFirewallKeeper(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"":          nil,
		"ufw":       {"/etc/ufw/ufw.conf": "# x\nENABLED=yes\n"},
		"firewalld": {"/etc/ufw/ufw.conf": "ENABLED=yes\n", "/proc/12/stat": "12 (firewalld)" + stat},
	} {
		if got := machine(t, files).firewallManager(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMeminfo(t *testing.T) {
	total, available, swap := meminfo("MemTotal:       24682604 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\nSwapTotal: 0 kB\n")
	if total != 24682604<<10 || available != 1<<20 || swap != 0 {
		t.Errorf("%d, %d, %d", total, available, swap)
	}
}

func TestProxy(t *testing.T) {
	m := machine(t, nil)
	expect(t, proxy(t.Context(), m), OK, "none")
	m.Environ = []string{"HTTP_PROXY=", "https_proxy=http://secret@p:1"}
	v := proxy(t.Context(), m)
	expect(t, v, OK, "https_proxy is set")
	if _, text := one(v); slices.Contains([]string{text}, "secret") {
		t.Error("the proxy's password is shown")
	}
	m.Config.Join.Server = "https://a:6443"
	expect(t, proxy(t.Context(), m), Warn, "NO_PROXY")
}

// answering runs a name server that gives one answer to everything.
func answering(t *testing.T, answer func(query []byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if _, err := conn.WriteTo(answer(query[:n]), from); err != nil {
				return
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestResolve(t *testing.T) {
	server := answering(t, func(q []byte) []byte {
		a := append(slices.Clone(q), 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 43, 0, 1)
		a[2], a[7] = 0x81, 1
		return a
	})
	got, err := Resolve(t.Context(), server, "kubernetes.default.svc.cluster.local", false)
	if err != nil || len(got) != 1 || got[0] != netip.MustParseAddr("10.43.0.1") {
		t.Errorf("%v, %v", got, err)
	}
	failing := answering(t, func(q []byte) []byte {
		a := slices.Clone(q)
		a[2], a[3] = 0x81, 0x82
		return a
	})
	if _, err := Resolve(t.Context(), failing, ".", false); err != Refused(2) || err.Error() != "it answers that it has failed (SERVFAIL)" {
		t.Error(err)
	}
	if err := AskName(t.Context(), failing, "."); err != nil {
		t.Errorf("an answer is none: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AskName(ctx, netip.MustParseAddrPort("127.0.0.1:9"), "."); err == nil {
		t.Error("nobody answers")
	}
	for _, junk := range [][]byte{nil, {1, 2, 3}, make([]byte, 600)} {
		if _, err := Resolve(t.Context(), answering(t, func([]byte) []byte { return junk }), "x.y", true); err == nil {
			t.Errorf("%d bytes of junk are an answer", len(junk))
		}
	}
	for n := range 60 { // answers that end too soon
		query, err := question("a.b", true)
		if err != nil {
			t.Fatal(err)
		}
		b := append(query, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 43, 0, 1)
		b[7] = 2
		_, _ = addresses(b[:min(n, len(b))])
	}
}

// TestOnThisMachine runs every probe of the table where it may: none may hang, panic or say nothing.
func TestOnThisMachine(t *testing.T) {
	cfg, err := config.Resolve(config.Server, []string{"--data-dir", t.TempDir(), "--run-dir", t.TempDir()}, nil)
	if err != nil {
		t.Skip("this machine has a configuration of its own: ", err)
	}
	m := &Machine{Config: cfg}
	r := Run(t.Context(), m.Probes(), Limit{Answer: askTimeout * 5})
	seen := map[string]bool{}
	for _, row := range r.Rows {
		seen[row.Name] = true
		if row.Finding == "" {
			t.Errorf("%s says nothing", row.Name)
		}
	}
	for _, p := range m.Probes() {
		if !seen[p.Name] {
			t.Errorf("%s found nothing, not even that all is well", p.Name)
		}
	}
}
