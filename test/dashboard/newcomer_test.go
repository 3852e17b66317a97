//go:build browser

package dashboard

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/mirror"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestNewcomer types what docs/gateway.md has for a site from nothing on a new machine with systemd: curl gets install.sh from a server that has GitHub's name,
// install.sh a signed release. Chromium opens the site by its name, with a certificate of an ACME server, and coracle dashboard, which shows the route and
// its certificate. Not from the document are the ACME server, what verifies it and the release, and the image, which no registry has.
func TestNewcomer(t *testing.T) {
	slots.Take(t)
	install, commands, visit := newcomersCommands(t)
	site := machines.Open(t)
	outside := site.Engine.Host // the network around the machine
	m := site.Boot(t, "solo", machines.Options{Args: []string{"--add-host", "github.com:host-gateway"}})
	ip, gateway := m.IP(), netip.MustParseAddr(site.Engine.Docker("inspect", "--format", "{{.NetworkSettings.Gateway}}", "solo"))

	authority := registries.NewAuthority(t, "of github.com and the ACME server")
	trusts(m, "authority", authority.PEM)
	m.Write("/root/release.pub", serveReleases(t, outside, gateway, authority))
	acme := acmeserver.Start(t, outside, netip.AddrPortFrom(gateway, 14000), acmeserver.Options{
		HTTP: 80, TLS: 443, Life: 90 * 24 * time.Hour, Authority: authority, Hosts: map[string][]string{"site.example.com": {ip}},
	})
	m.Sh(`echo "$1 site.example.com" >>/etc/hosts`, ip)

	types := func(line string) string {
		t.Helper()
		out, err := m.TrySh("export INSTALL_CORACLE_KEY=/root/release.pub CORACLE_ACME_SERVER=" + acme.Directory + "\nexec 2>&1\n" + line)
		t.Logf("$ %s\n%s", line, out)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	types(install)
	m.Sh("coracle images import /mnt/images/busybox.tar; coracle ctr images tag coracle.test/busybox:1 docker.io/library/busybox:1.37")
	types(commands)
	trusts(m, "acme", acme.Root())
	if out := types(visit); out != "hello from a pod" {
		t.Errorf("curl says %q", out)
	}

	browse(t, outside, "stranger", ip, "")
	if err := os.WriteFile(outside.Path("/tmp/root.crt"), acme.Root(), 0o644); err != nil {
		t.Fatal(err)
	}
	outside.Run("sh", "-ec", `mkdir -p /tmp/visitor/.pki/nssdb; certutil -N -d sql:/tmp/visitor/.pki/nssdb --empty-password; certutil -A -d sql:/tmp/visitor/.pki/nssdb -n acme -t C,, -i /tmp/root.crt`)
	browse(t, outside, "visitor", ip, "")

	m.Sh("setsid coracle dashboard </dev/null >/run/page 2>&1 &")
	var address string
	hosts.Eventually(t, 20*time.Second, func() error {
		said := m.Run("cat", "/run/page")
		if address = regexp.MustCompile(`https?://\S+#\S+`).FindString(said); address == "" {
			return fmt.Errorf("coracle dashboard has printed no address: %s", said)
		}
		return nil
	})
	outside.Run("mkdir", "/tmp/pictures")
	if dir := os.Getenv("CORACLE_TEST_PICTURES"); dir != "" {
		t.Cleanup(func() { _ = exec.Command("cp", "-R", outside.Path("/tmp/pictures")+"/.", dir).Run() })
	}
	pid := site.Engine.Docker("inspect", "--format", "{{.State.Pid}}", m.Name)
	browse(t, outside, "owner", address, "/tmp/pictures", "nsenter", "--net=/proc/"+pid+"/ns/net")
}

// newcomersCommands are the commands of docs/gateway.md for a site from nothing: the line that installs coracle, those that make the site, and the visit.
func newcomersCommands(t *testing.T) (install, commands, visit string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)\n## A site from nothing\n.*?\n    (curl [^\n]*)\n.*?\n```sh\n(.*?)```.*?\n```sh\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/gateway.md has no site from nothing with a line for curl and two blocks of commands")
	}
	return string(found[1]), string(found[2]), string(found[3])
}

// trusts has the programs of a machine trust an authority.
func trusts(m *machines.Machine, name string, authority []byte) {
	m.Write("/usr/local/share/ca-certificates/"+name+".crt", string(authority))
	m.Run("update-ca-certificates")
}

// serveReleases serves install.sh and the executable under test, as a signed release of the channel stable, where GitHub has them, at the address of a host.
// It returns the key for the signatures.
func serveReleases(t *testing.T, h *hosts.Host, at netip.Addr, authority *registries.Authority) string {
	t.Helper()
	program, err := os.ReadFile(hosts.Bin(t))
	if err != nil {
		t.Fatal(err)
	}
	version := strings.Fields(h.Run(hosts.Bin(t), "version"))[1]
	releases := mirror.New(t)
	releases.Release(t, version, map[string]string{"coracle-linux-" + runtime.GOARCH: string(program)})
	releases.Channel(t, "stable", version)

	const github = "/coracle-dev/coracle/releases"
	mux := http.NewServeMux()
	mux.Handle(github+"/download/", http.StripPrefix(github+"/download/", http.FileServer(http.Dir(releases.Dir))))
	mux.HandleFunc(github+"/latest/download/install.sh", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "../../install.sh") })
	cert, key := authority.Sign(t, at, "github.com")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener := h.Listen("tcp", netip.AddrPortFrom(at, 443).String())
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return releases.Key
}

// browse runs newcomer.mjs on a host as somebody, with a home of their own, who goes to an address; in is a command that runs it elsewhere.
func browse(t *testing.T, h *hosts.Host, who, address, pictures string, in ...string) {
	t.Helper()
	script, err := filepath.Abs("newcomer.mjs")
	if err != nil {
		t.Fatal(err)
	}
	command := append(in, "env", "HOME=/tmp/"+who, "node", script, who, address, pictures)
	out, err := h.Command(command[0], command[1:]...).CombinedOutput()
	t.Logf("%s: %s", who, out)
	if err != nil {
		t.Errorf("%s: %v", who, err)
	}
}
