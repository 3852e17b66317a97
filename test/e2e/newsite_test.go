package e2e

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestNewcomersSite runs the commands of docs/gateway.md on a new server: a Gateway and a route lead to a pod, with a certificate of an ACME server, and the
// page shows both.
func TestNewcomersSite(t *testing.T) {
	slots.Take(t)
	blocks := transcript(t, "docs/gateway.md", "A site from nothing")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands, not the 2 that this test knows", len(blocks))
	}
	hosts.Bin(t)
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	authority := registries.NewAuthority(t, "of the ACME server")
	h := hosts.New(t, wire, "solo", hosts.Options{})
	h.CopyImages()
	n := newcomer{h, t}
	n.write(acmeCA, authority.PEM)
	elsewhere := hosts.New(t, wire, "acme", hosts.Options{})
	elsewhere.SetIP(acmeAddress.Addr())
	const site = "site.example.com"
	server := acmeserver.Start(t, elsewhere, acmeAddress, acmeserver.Options{HTTP: 80, TLS: 443, Life: time.Hour, Authority: authority, Hosts: map[string][]string{site: {h.IP.String()}}})
	h.Start(acmeArgs...)
	waitReady(t, h)

	n.Run("sh", "-c", "mkdir -p /usr/local/bin && ln -sf "+hosts.Bin(t)+" /usr/local/bin/coracle && ln -sf coracle /usr/local/bin/kubectl")
	n.Coracle("ctr", "images", "tag", "coracle.test/busybox:1", "docker.io/library/busybox:1.37") // no registry is reached
	n.types(blocks[0])
	n.write("/run/root.crt", server.Root())
	trusting := "curl --cacert /run/root.crt --resolve " + site + ":443:" + h.IP.String() + " "
	if out := n.types(strings.Replace(blocks[1], "curl ", trusting, 1)); out != "hello from a pod\n" {
		t.Errorf("the site answers %q", out)
	}

	d, address := startDashboard(t, h)
	d.login(address)
	var gateway struct {
		Status struct {
			Listeners []struct{ AttachedRoutes int }
		}
	}
	d.reads("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/site", &gateway)
	if l := gateway.Status.Listeners; len(l) != 1 || l[0].AttachedRoutes != 1 {
		t.Errorf("the page sees the Gateway with the status %+v", gateway.Status)
	}
	var certificate struct {
		Names    []string
		NotAfter time.Time
	}
	d.reads("/certificates/default/site-tls", &certificate)
	if left := time.Until(certificate.NotAfter); !slices.Equal(certificate.Names, []string{site}) || left > time.Hour || left < 30*time.Minute {
		t.Errorf("the page sees the certificate %+v", certificate)
	}
}

// write writes a file of the host.
func (n newcomer) write(path string, data []byte) {
	n.t.Helper()
	err := os.MkdirAll(filepath.Dir(n.Path(path)), 0o755)
	if err == nil {
		err = os.WriteFile(n.Path(path), data, 0o644)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// reads gets an object as the page does.
func (d *dashboard) reads(path string, into any) {
	d.t.Helper()
	got := d.call("GET", path, "")
	if err := json.Unmarshal([]byte(got.body), into); got.code != http.StatusOK || err != nil {
		d.t.Fatalf("%s: %d %s (%v)", path, got.code, got.body, err)
	}
}
