package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestNodeIP(t *testing.T) {
	const dual4, dual6 = "--cluster-cidr=10.42.0.0/16,fd42::/56", "--service-cidr=10.43.0.0/16,fd43::/112"
	for _, test := range []struct {
		title  string
		source []netip.Addr // of the default routes
		up     []netip.Addr // of interfaces
		flags  []string
		want   string
		err    string
	}{
		{"default route", addrs("198.51.100.7", "2001:db8::7"), addrs("10.9.9.9"), nil, "198.51.100.7", ""},
		{"no default route", nil, addrs("127.0.0.1", "::1", "fe80::1", "169.254.3.4", "10.9.9.9", "10.9.9.10"), nil, "10.9.9.9", ""},
		{"our own bridge does not count", nil, addrs("127.0.0.1", "10.42.0.1"), nil, "192.0.0.8", ""},
		{"only loopback", nil, addrs("127.0.0.1", "::1"), nil, "192.0.0.8", ""},
		{"the stand-in of the last start", nil, addrs("127.0.0.1", "192.0.0.8"), nil, "192.0.0.8", ""},
		{"only loopback, IPv6", nil, addrs("::1"), []string{"--cluster-cidr=fd42::/56", "--service-cidr=fd43::/112"}, "100:0:0:1::8", ""},
		{"only loopback, both", nil, addrs("::1"), []string{dual4, dual6}, "192.0.0.8,100:0:0:1::8", ""},
		{"both", addrs("198.51.100.7", "2001:db8::7"), nil, []string{dual4, dual6}, "198.51.100.7,2001:db8::7", ""},
		{"IPv6 missing", addrs("198.51.100.7"), addrs("fe80::1"), []string{dual4, dual6}, "",
			"--cluster-cidr: this host has no address for IPv6; give one with --node-ip, or one family only with --cluster-cidr and --service-cidr"},
		{"inside a cluster", addrs("10.42.7.7"), nil, nil, "",
			"--node-ip: the node's address 10.42.7.7 lies in --cluster-cidr 10.42.0.0/16; choose another range, or another address"},
	} {
		t.Run(test.title, func(t *testing.T) {
			h := edge()
			h.addrs = func() []netip.Addr { return test.up }
			h.source = func(v6 bool) netip.Addr {
				for _, a := range test.source {
					if a.Is6() == v6 {
						return a
					}
				}
				return netip.Addr{}
			}
			cfg, _, err := resolve(Server, test.flags, nil, h, nil)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("got %v, want %s", err, test.err)
				}
				return
			}
			if got := strings.Join(texts(cfg.Node.IPs), ","); err != nil || got != test.want {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestAgentTakesOneAddress(t *testing.T) {
	cfg, _, err := resolve(Agent, []string{"--server=a"}, nil, edge(), nil)
	if got := strings.Join(texts(cfg.Node.IPs), ","); err != nil || got != "198.51.100.7" {
		t.Error(got, err)
	}
}

func TestHostName(t *testing.T) {
	for name, want := range map[string]string{
		"edge-1.example.com": "", "EDGE": "", "(none)": "cannot be a node name", "": "cannot be a node name",
		"edge_1": "cannot be a node name", strings.Repeat("a", 64): "cannot be a node name",
	} {
		h := edge()
		h.hostname = func() (string, error) { return name, nil }
		cfg, _, err := resolve(Server, nil, nil, h, nil)
		if want == "" && (err != nil || cfg.Node.Name != strings.ToLower(name)) {
			t.Errorf("%q: got %q, %v", name, cfg.Node.Name, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "give one with --node-name")) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	h := edge()
	h.hostname = func() (string, error) { return "", errors.New("no name") }
	if _, _, err := resolve(Server, nil, nil, h, nil); err == nil || err.Error() != "--node-name: reading the host name: no name" {
		t.Error(err)
	}
	if _, _, err := resolve(Server, []string{"--node-name=edge"}, nil, h, nil); err != nil {
		t.Error(err)
	}
}

func TestResolvConf(t *testing.T) {
	const stub, docker, real = "# x\nnameserver 127.0.0.53\noptions edns0\n", "nameserver 127.0.0.11\n", "nameserver 127.0.0.1\nnameserver 9.9.9.9\n"
	for _, test := range []struct {
		title, etc, systemd, want string
	}{
		{"plain", real, "", etcResolvConf},
		{"plain beside systemd-resolved", real, "nameserver 9.9.9.9", etcResolvConf},
		{"systemd-resolved's stub", stub, "nameserver 9.9.9.9", systemdResolvConf},
		{"a stub, but no systemd-resolved", stub, "", etcResolvConf},
		{"Docker", docker, "", etcResolvConf},
		{"IPv6 stub", "nameserver ::1\n", "nameserver 9.9.9.9", systemdResolvConf},
		{"no name server", "search example.com\n", "nameserver 9.9.9.9", etcResolvConf},
		{"no file", "", "", etcResolvConf},
	} {
		t.Run(test.title, func(t *testing.T) {
			files := map[string]string{etcResolvConf: test.etc, systemdResolvConf: test.systemd}
			h := edge()
			h.readFile = func(name string) ([]byte, error) {
				if files[name] == "" {
					return nil, fs.ErrNotExist
				}
				return []byte(files[name]), nil
			}
			cfg, _, err := resolve(Server, nil, nil, h, nil)
			if err != nil || cfg.Node.ResolvConf != test.want {
				t.Errorf("got %s, %v", cfg.Node.ResolvConf, err)
			}
		})
	}
}

// TestThisHost only says that the real host can be asked.
func TestThisHost(t *testing.T) {
	h := thisHost()
	for _, v6 := range []bool{false, true} {
		if a, _ := h.nodeIP(v6, nil); a.IsValid() && (a.Is6() != v6 || unusable(a) != "") {
			t.Errorf("%v is no address for a node", a)
		}
	}
}
