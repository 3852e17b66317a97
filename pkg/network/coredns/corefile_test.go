package coredns

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/golden"
)

var (
	gateways = []netip.AddrPort{netip.MustParseAddrPort("10.42.0.1:10053"), netip.MustParseAddrPort("[fd42::1]:10053")}
	hostPort = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:10053")}
)

// TestRender compares testdata/NAME.corefile as rendered with testdata/NAME.golden.
func TestRender(t *testing.T) {
	defaultCorefile, err := manifests.Corefile(config.Network{
		Domain: "cluster.local", Backend: config.VXLAN, DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		set  setting
	}{
		{"default", setting{listen: gateways, upstreams: []string{"192.0.2.53", "2001:db8::53"}}},
		{"kubeadm", setting{listen: gateways, upstreams: []string{"192.0.2.53"}}},
		{"k3s", setting{listen: gateways}},
		{"many-blocks", setting{listen: hostPort, upstreams: []string{"127.0.0.53"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := defaultCorefile
			if tt.name != "default" {
				data, err := os.ReadFile(filepath.Join("testdata", tt.name+".corefile"))
				if err != nil {
					t.Fatal(err)
				}
				in = string(data)
			}
			out, err := render(in, tt.set)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+tt.name+".golden", out)
			if got, want := strings.Count(string(out), "\n"), strings.Count(in, "\n"); got != want {
				t.Errorf("%d lines, the original has %d: error messages would name wrong lines", got, want)
			}
		})
	}
}

func TestRenderErrors(t *testing.T) {
	if _, err := render(".\nwhoami\n", setting{listen: gateways}); err == nil || !strings.Contains(err.Error(), "Corefile:1:") {
		t.Errorf("error is %v, want one that names line 1", err)
	}
}

func TestTokens(t *testing.T) {
	in := "a \"b \\\" c\"# no\n  d#x y\n\"e\nf\" g"
	var got []string
	for _, tok := range tokens(in) {
		if tok.first {
			got = append(got, "|")
		}
		got = append(got, tok.text)
	}
	want := []string{"|", "a", `b " c`, "|", "d", "y", "|", "e\nf", "g"} // Caddy ends a comment within a word at the next space
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzRender: render accepts every text, and words that it does not replace are read as before.
func FuzzRender(f *testing.F) {
	for _, name := range []string{"kubeadm", "k3s", "many-blocks"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".corefile"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("import x\n(s) { import")
	f.Add("forward . /etc/resolv.conf")
	f.Add(". {\n\ta \"b \\\\\\\" c\" \"\" d\\\"e \"\\\"f\" \"g\nh\" {$I}\n}")
	f.Fuzz(func(t *testing.T, in string) {
		_, _ = render(in, setting{listen: gateways})
		before := tokens(in)
		if after := tokens(text(before, strings.Count(in, "\n"))); !slices.Equal(before, after) {
			t.Fatalf("%+v is read back as %+v", before, after)
		}
	})
}
