package check

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// machine is one whose files are given.
func machine(t *testing.T, files map[string]string) *Machine {
	t.Helper()
	m := &Machine{Root: t.TempDir()}
	m.Config.Role = config.Server
	m.Config.Network = config.Network{
		Backend: config.VXLAN, ClusterCIDRs: prefixes("10.42.0.0/16"), ServiceCIDRs: prefixes("10.43.0.0/16"),
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestJudgeHost(t *testing.T) {
	const gib = 1 << 30
	server, agent := config.Server, config.Agent
	tests := []struct {
		name  string
		got   []Verdict
		want  Result
		texts []string
	}{
		{"new kernel", judgeKernel("6.1.0-18-amd64"), OK, []string{"6.1.0"}},
		{"just new enough", judgeKernel("5.13.0"), OK, nil},
		{"old kernel", judgeKernel("5.4.0-150-generic"), Fail, []string{"Linux 5.4.0", "upgrade"}},
		{"odd kernel", judgeKernel("x"), Warn, nil},
		{"memory", judgeMemory(server, false, 4*gib, 3*gib, 0, 0), OK, []string{"4096 MiB"}},
		{"swap", judgeMemory(server, false, 4*gib, 3*gib, gib, 0), OK, []string{"swap, which pods cannot use"}},
		{"little memory", judgeMemory(server, false, gib/2, gib/2, 0, 0), Warn, []string{"little for coracle server"}},
		{"too little memory", judgeMemory(server, false, gib/4, gib/5, 0, 0), Fail, []string{"give it at least 896 MiB"}},
		{"enough for an agent", judgeMemory(agent, false, gib/2, gib/2, 0, 0), OK, nil},
		{"limit of a container", judgeMemory(server, false, 4*gib, 3*gib, 0, gib/4), Fail, []string{"cgroup that this runs in allows 256 MiB"}},
		{"in use", judgeMemory(server, false, 4*gib, gib/8, 0, 0), Warn, []string{"stop something"}},
		{"in use by coracle", judgeMemory(server, true, 4*gib, gib/8, 0, 0), OK, nil},
		{"limits", judgeLimits(1<<20, 0, 4<<20), OK, nil},
		{"few files", judgeLimits(1024, 0, 4<<20), Warn, []string{"LimitNOFILE", "--ulimit"}},
		{"few processes", judgeLimits(1<<20, 512, 4096), Warn, []string{"TasksMax", "pid_max"}},
		{"time is kept", judgeClock(true, ""), OK, nil},
		{"time will be kept", judgeClock(false, "chronyd"), OK, []string{"chronyd"}},
		{"nobody keeps time", judgeClock(false, ""), Warn, []string{"timedatectl"}},
		{"name", judgeHostname("a", "a", true), OK, nil},
		{"other name", judgeHostname("a", "b", false), OK, []string{"node b, on host a", "not in /etc/hosts"}},
		{"no name", judgeHostname("localhost", "localhost", true), Warn, []string{"--node-name"}},
		{"no name, with a domain", judgeHostname("x", "localhost.localdomain", true), Warn, nil},
		{"connections", judgeConntrack("100", "1000"), OK, nil},
		{"many connections", judgeConntrack("900", "1000"), Warn, []string{"nf_conntrack_max=2000"}},
		{"no connections", judgeConntrack("", ""), OK, nil},
		{"loose", judgeReversePath("2", 3), OK, nil},
		{"strict, one way", judgeReversePath("1", 1), OK, nil},
		{"strict, two ways", judgeReversePath("1", 2), Warn, []string{"rp_filter=2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.got, tt.want, tt.texts...) })
	}
}

func TestJudgeDisk(t *testing.T) {
	fs := func(used, inodes uint64) unix.Statfs_t {
		return unix.Statfs_t{Bsize: 4096, Blocks: 1e6, Bfree: 1e6 - used*1e4, Bavail: 1e6 - used*1e4, Files: 1e6, Ffree: 1e6 - inodes*1e4}
	}
	latency := func(half, slowest time.Duration) (out []time.Duration) {
		for i := range 100 {
			d := half
			if i > 97 {
				d = slowest
			}
			out = append(out, d)
		}
		return out
	}
	const ms = time.Millisecond
	server, agent := config.Server, config.Agent
	tests := []struct {
		name  string
		got   []Verdict
		want  Result
		texts []string
	}{
		{"space", judgeSpace(fs(50, 5)), OK, []string{"50 % of the space", "5 % of the inodes"}},
		{"nearly full", judgeSpace(fs(90, 5)), Warn, []string{"remove images"}},
		{"few inodes", judgeSpace(fs(10, 96)), Fail, []string{"evict"}},
		{"fast", judgeLatency(server, latency(ms, 5*ms)), OK, []string{"after 1ms, 99 % after 5ms"}},
		{"at times slow", judgeLatency(server, latency(ms, 50*ms)), Warn, []string{"etcd recommends 10 ms", "SSD"}},
		{"at times very slow", judgeLatency(server, latency(ms, 500*ms)), Warn, []string{"lose its leader"}},
		{"slow", judgeLatency(server, latency(200*ms, 500*ms)), Fail, []string{"cannot keep a leader"}},
		{"slow for an agent", judgeLatency(agent, latency(ms, 50*ms)), OK, nil},
		{"very slow for an agent", judgeLatency(agent, latency(200*ms, 500*ms)), Warn, nil},
		{"one write", judgeLatency(server, []time.Duration{ms}), OK, nil},
		{"no write", judgeLatency(server, nil), Skipped, nil},
		{"ext4", judgeFileSystem(unix.EXT4_SUPER_MAGIC, false), OK, []string{"ext4"}},
		{"read-only", judgeFileSystem(unix.EXT4_SUPER_MAGIC, true), Fail, []string{"read-write"}},
		{"nfs", judgeFileSystem(unix.NFS_SUPER_MAGIC, false), Fail, []string{"nfs: neither"}},
		{"overlay", judgeFileSystem(unix.OVERLAYFS_SUPER_MAGIC, false), Warn, []string{"docker run -v"}},
		{"tmpfs", judgeFileSystem(unix.TMPFS_MAGIC, false), Warn, []string{"after a reboot"}},
		{"unknown", judgeFileSystem(0x1234, false), OK, []string{"0x1234"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.got, tt.want, tt.texts...) })
	}
}

func TestJudgeNetwork(t *testing.T) {
	ip := netip.MustParseAddr
	network := config.Network{ClusterCIDRs: prefixes("10.42.0.0/16"), ServiceCIDRs: prefixes("10.43.0.0/16")}
	tests := []struct {
		name  string
		got   []Verdict
		want  Result
		texts []string
	}{
		{"address", judgeAddress([]netip.Addr{ip("10.0.0.1")}, map[netip.Addr]string{ip("10.0.0.1"): "eth0"}, nil), OK, []string{"10.0.0.1 on eth0"}},
		{"no such address", judgeAddress([]netip.Addr{ip("10.0.0.1")}, nil, nil), Fail, []string{"--node-ip"}},
		{"interrupted, but found", judgeAddress([]netip.Addr{ip("10.0.0.1")}, map[netip.Addr]string{ip("10.0.0.1"): "eth0"}, netlink.ErrDumpInterrupted), OK, nil},
		{"interrupted", judgeAddress([]netip.Addr{ip("10.0.0.1")}, nil, netlink.ErrDumpInterrupted), Skipped, []string{"cannot be read"}},
		{"routes", judgeRoutes([]route{{prefixes("10.0.0.0/24")[0], "eth0"}, {prefixes("10.42.1.0/24")[0], "flannel.1"}}, network), OK, nil},
		{"route into pods", judgeRoutes([]route{{prefixes("10.0.0.0/8")[0], "tun0"}}, network), Fail, []string{"10.0.0.0/8 by tun0", "--cluster-cidr", "--service-cidr"}},
		{"mtu", judgeMTU("eth0", 1500, 50), OK, []string{"1450"}},
		{"small mtu", judgeMTU("wg0", 1300, 70), Warn, []string{"1230", "mtu 1350"}},
		{"name servers", judgeNameServers("/r", []netip.Addr{ip("1.1.1.1")}, []error{nil}), OK, nil},
		{"one is dead", judgeNameServers("/r", []netip.Addr{ip("1.1.1.1"), ip("1.1.1.2")}, []error{nil, errors.New("no answer")}), Warn, []string{"1.1.1.2 does not answer"}},
		{"all are dead", judgeNameServers("/r", []netip.Addr{ip("1.1.1.1")}, []error{errors.New("no answer")}), Warn, []string{"no name outside"}},
		{"no name server", judgeNameServers("/r", nil, nil), Warn, []string{"/r names no name server"}},
		{"nothing is left", judgeLeftovers(config.VXLAN, false, []string{"lo", "eth0", "docker0"}, []string{"README"}), Skipped, nil},
		{"bridge of another", judgeLeftovers(config.VXLAN, false, []string{"cni0"}, nil), Fail, []string{"ip link delete cni0"}},
		{"bridge of ours", judgeLeftovers(config.VXLAN, true, []string{"cni0"}, []string{"10-coracle.conflist"}), Skipped, nil},
		{"other network", judgeLeftovers(config.VXLAN, true, []string{"cilium_host"}, nil), Warn, nil},
		{"other configuration first", judgeLeftovers(config.VXLAN, true, nil, []string{"05-cilium.conflist"}), Fail, []string{"--flannel-backend=none"}},
		{"other configuration last", judgeLeftovers(config.VXLAN, true, nil, []string{"99-x.conf"}), Warn, nil},
		{"other network is wanted", judgeLeftovers(config.BackendNone, false, []string{"cilium_host"}, []string{"05-cilium.conflist"}), Skipped, nil},
		{"legacy rules", judgeLegacy("-P FORWARD DROP\n", network.ClusterCIDRs), Fail, []string{"iptables-legacy -I FORWARD -s 10.42.0.0/16"}},
		{"legacy rules let pods", judgeLegacy("-P FORWARD DROP\n-A FORWARD -s 10.42.0.0/16 -j ACCEPT\n", network.ClusterCIDRs), Skipped, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, Else(tt.got, Skipf("nothing")), tt.want, tt.texts...) })
	}
	now := time.Now()
	for skew, want := range map[time.Duration]Result{0: OK, 2 * time.Second: OK, 30 * time.Second: Warn, -time.Hour: Fail} {
		expect(t, JudgeSkew("https://s:6443", now.Add(skew).Truncate(time.Second), now, now.Add(10*time.Millisecond)), want)
	}
}

func TestFirewall(t *testing.T) {
	cfg := machine(t, nil).Config
	cfg.API.Port = 6443
	chain := func(forward bool, known ...string) closedChain {
		return closedChain{name: "inet mine c", forward: forward, v4: true, v6: true, matches: func(b []byte) bool {
			for _, k := range known {
				if k == string(b) {
					return true
				}
			}
			return false
		}}
	}
	open := []string{"\x28\x0a", "\x19\x2b", "\x21\x18"} // 10250, 6443, 8472
	tests := []struct {
		name, keeper string
		chain        closedChain
		want         Result
		texts        []string
	}{
		{"drops pods", "", chain(true), Fail, []string{"between pods", "nft insert rule inet mine c ip saddr 10.42.0.0/16 accept"}},
		{"knows pods", "", chain(true, "\x0a\x2a\x00\x00"), Skipped, nil},
		{"knows pods by their mask", "", chain(true, "\x0a\x2a"), Skipped, nil},
		{"knows the bridge", "", chain(true, "cni0"), Skipped, nil},
		{"drops questions", "ufw", chain(false, open...), Fail, []string{"DNS", "ufw allow from 10.42.0.0/16"}},
		{"drops packets for pods", "firewalld", chain(false, append(open[:2:2], "cni0")...), Warn, []string{"8472/udp", "firewall-cmd --permanent --add-port=8472/udp", "--reload"}},
		{"lets all in", "", chain(false, append(open, "cni0")...), Skipped, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, Else(judgeFirewall(cfg, tt.keeper, []closedChain{tt.chain}), Skipf("nothing")), tt.want, tt.texts...)
		})
	}
	native := chain(false)
	native.name = "inet filter input" // as in the examples of nftables
	found := judgeFirewall(cfg, "", []closedChain{native})
	expect(t, found[:1], Fail, "nft insert rule inet filter input ip saddr 10.42.0.0/16 accept")
	expect(t, found[1:], Warn, "nft insert rule inet filter input udp dport 8472 accept")
	docker := chain(true)
	docker.name, docker.policy = "ip filter FORWARD", true
	expect(t, judgeFirewall(cfg, "", []closedChain{docker}), OK, "ip filter FORWARD", "coracle adds rules", "10.42.0.0/16")
	docker.policy = false
	expect(t, judgeFirewall(cfg, "", []closedChain{docker}), Fail, "iptables -I FORWARD -s 10.42.0.0/16 -j ACCEPT; iptables -I FORWARD -d 10.42.0.0/16")
}
