package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestPodResolvConf(t *testing.T) {
	const docker = "# made by Docker\nnameserver 127.0.0.11\nsearch example.com\noptions ndots:0\n"
	for _, test := range []struct {
		title, host string
		disable     []string
		want        string // "" is the host's own file
	}{
		{"servers that pods reach", "nameserver 9.9.9.9\n", nil, ""},
		{"Docker's server", docker, nil, "nameserver 10.43.0.10\nsearch example.com\noptions ndots:0\n"},
		{"Docker's server, without DNS of ours", docker, []string{"dns"}, ""},
		{"no file", "", nil, "nameserver 10.43.0.10\n"},
	} {
		t.Run(test.title, func(t *testing.T) {
			dir := t.TempDir()
			host := filepath.Join(dir, "resolv.conf")
			if test.host != "" {
				if err := os.WriteFile(host, []byte(test.host), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := podResolvConf(config.Config{
				Dirs: paths.Dirs{Data: filepath.Join(dir, "data")}, Disable: test.disable, Node: config.Node{ResolvConf: host},
				Network: config.Network{DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if got != host {
					t.Errorf("got %s", got)
				}
				return
			}
			if data, err := os.ReadFile(got); err != nil || string(data) != test.want {
				t.Errorf("got %s: %q, %v", got, data, err)
			}
		})
	}
}
