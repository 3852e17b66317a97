package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/chartfile"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// Secrets of TestRegistries, which must not be in a log.
const (
	registryPassword = "planted-registry-password-4b7d"
	wrongPassword    = "planted-wrong-password-6e2f"
	nextPassword     = "planted-next-password-1c8a"
	podPassword      = "planted-pod-password-9f3b"
	identityToken    = "planted-identity-token-2d5c"
)

// site is a host with registries, and a node that pulls from them.
type site struct {
	*testing.T
	wire        *hosts.Wire
	store, node *hosts.Host
	server      *hosts.Server
	base        registries.Image
	ca, clients *registries.Authority
	plain       *registries.Registry // has all images; the others share its storage
}

const siteToken = "--token=the-same-everywhere"

const registriesFile = "/etc/coracle/registries.yaml"

// TestRegistries pulls from real registries, with the settings of registries.yaml and hosts.toml, while coracle runs
// without a restart.
func TestRegistries(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	archives := hosts.Images(t)
	busybox := slices.IndexFunc(archives, func(path string) bool { return filepath.Base(path) == "busybox.tar" })
	if busybox < 0 {
		t.Skip("CORACLE_TEST_IMAGES has no busybox.tar: run `make test`")
	}
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	s := &site{T: t, wire: wire, store: hosts.New(t, wire, "store", hosts.Options{}), node: hosts.New(t, wire, "solo", hosts.Options{}),
		base: registries.ReadImage(t, archives[busybox]), ca: registries.NewAuthority(t, "their CA"), clients: registries.NewAuthority(t, "whom they know")}
	s.plain = registries.Start(t, s.store, registries.Options{})
	s.server = s.node.Start(siteToken)
	waitReady(t, s.node)
	writeHost(t, s.node, "/etc/ssl/theirs.crt", string(s.ca.PEM))

	for _, c := range []struct {
		name string
		run  func(*site)
	}{
		{"hosts.toml in three directories", (*site).hostsTOML},
		{"TLS and passwords that change", (*site).passwords},
		{"client certificate", (*site).clientCertificate},
		{"mirrors in their order", (*site).mirrors},
		{"tokens and rewritten names", (*site).tokens},
		{"credentials of pods", (*site).podCredentials},
		{"three at a time", (*site).parallel},
		{"exported and pruned", (*site).exported},
		{"a broken file", (*site).brokenFile},
		{"a chart", (*site).chart},
		{"an agent without default endpoints", (*site).agent},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.T, sub.node = t, s.node.For(t)
			c.run(&sub)
		})
	}
	for _, secret := range []string{registryPassword, wrongPassword, nextPassword, podPassword, identityToken} {
		encoded := base64.StdEncoding.EncodeToString([]byte("me:" + secret))
		if log := s.server.Log(); strings.Contains(log, secret) || strings.Contains(log, encoded) {
			t.Errorf("the log holds %q", secret)
		}
	}
	if s.server.Restarts() != 0 {
		t.Error("a half was restarted")
	}
}

// push makes an image that no node has, and returns its name without the registry.
func (s *site) push(repository string) string {
	s.Helper()
	name := repository + ":1"
	s.plain.Push(name, s.base.With(s, "case", s.Name()+" "+name))
	return name
}

// says writes the node's registries.yaml.
func (s *site) says(format string, args ...any) {
	s.Helper()
	writeHost(s.T, s.node, registriesFile, fmt.Sprintf(format, args...))
}

func (s *site) pull(image string, flags ...string) error {
	_, err := s.node.TryCoracle(append(append([]string{"crictl", "pull"}, flags...), image)...)
	return err
}

func (s *site) mustPull(image string, flags ...string) {
	s.Helper()
	if err := s.pull(image, flags...); err != nil {
		s.Fatalf("pulling %s: %v", image, err)
	}
}

// mustFail expects a pull to fail with an error that has the reason and no secret.
func (s *site) mustFail(image, why string, flags ...string) {
	s.Helper()
	err := s.pull(image, flags...)
	if err == nil || !strings.Contains(err.Error(), why) {
		s.Errorf("pulling %s ends with %v instead of %q", image, err, why)
	}
	if err != nil && strings.Contains(err.Error(), "planted") {
		s.Errorf("the error tells a secret: %v", err)
	}
}

func (s *site) hostsTOML() {
	for i, dir := range []string{"/etc/coracle/certs.d", "/etc/containerd/certs.d", "/etc/docker/certs.d"} {
		registry := fmt.Sprintf("place%d.test", i)
		writeHost(s.T, s.node, filepath.Join(dir, registry, "hosts.toml"), fmt.Sprintf("server = %q\n", s.plain.URL))
		s.mustPull(registry + "/" + s.push(fmt.Sprintf("toml/app%d", i)))
	}
	writeHost(s.T, s.node, "/etc/coracle/certs.d/_default/hosts.toml", "server = \"http://127.0.0.1:1\"\n")
	s.mustPull("place2.test/" + s.push("toml/own")) // a registry's own directory has precedence over _default in another place
	s.node.Run("rm", "-r", "/etc/coracle/certs.d/_default")
	name := s.push("toml/ctr")
	s.node.Coracle("ctr", "-n", "k8s.io", "images", "pull", "place1.test/"+name)
	s.saw("GET", "/v2/toml/ctr/blobs/")
}

// saw looks for a request in the log of the registry that has all images.
func (s *site) saw(words ...string) {
	s.Helper()
	if len(s.plain.Requests(words...)) == 0 {
		s.Errorf("the registry saw no request with %q", words)
	}
}

func (s *site) passwords() {
	secured := registries.Start(s, s.store, registries.Options{Port: 5001, Storage: s.plain.Storage, TLS: s.ca, Users: map[string]string{"me": registryPassword}})
	image := func(n int) string { return secured.Addr + "/" + s.push(fmt.Sprintf("secured/app%d", n)) }
	first := image(1)
	s.mustFail(first, "certificate signed by unknown authority")
	s.says("configs:\n  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt}\n", secured.Addr)
	s.mustFail(first, "no basic auth credentials")
	login := func(auth string) {
		s.says("configs:\n  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt}\n    auth: {%s}\n", secured.Addr, auth)
	}
	login("username: me, password: " + wrongPassword)
	s.mustFail(first, "401")
	login("username: me, password: " + registryPassword)
	s.mustPull(first)
	if len(secured.Requests("GET", "/blobs/", " 200 ")) < 2 {
		s.Errorf("the registry did not send the image's configuration and layer: %q", secured.Requests())
	}
	secured.SetUsers(map[string]string{"me": nextPassword})
	second := image(2)
	s.mustFail(second, "401")
	login("auth: " + base64.StdEncoding.EncodeToString([]byte("me:"+nextPassword)))
	s.mustPull(second)
	s.mustPull(image(3))
	s.mustFail(image(4), "401", "--creds", "me:"+wrongPassword) // credentials of a pull are tried first
	s.node.Coracle("ctr", "-n", "k8s.io", "images", "pull", image(5))
}

func (s *site) clientCertificate() {
	mutual := registries.Start(s, s.store, registries.Options{Port: 5002, Storage: s.plain.Storage, TLS: s.ca, Clients: s.clients})
	image := mutual.Addr + "/" + s.push("mutual/app")
	s.says("configs:\n  %q:\n    tls: {insecure_skip_verify: true}\n", mutual.Addr)
	s.mustFail(image, "certificate required")
	cert, key := s.clients.Sign(s, netip.Addr{})
	writeHost(s.T, s.node, "/etc/ssl/client.crt", string(cert))
	writeHost(s.T, s.node, "/etc/ssl/client.key", string(key))
	s.says("configs:\n  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt, cert_file: /etc/ssl/client.crt, key_file: /etc/ssl/client.key}\n", mutual.Addr)
	s.mustPull(image)
	again := mutual.Addr + "/" + s.push("mutual/again")
	other := registries.NewAuthority(s, "somebody else")
	cert, key = other.Sign(s, netip.Addr{})
	writeHost(s.T, s.node, "/etc/ssl/client.crt", string(cert))
	s.mustPull(again) // while certificate and key do not match, the previous ones stay in use
	writeHost(s.T, s.node, "/etc/ssl/client.key", string(key))
	s.mustFail(mutual.Addr+"/"+s.push("mutual/unknown"), "tls: ") // changed certificates take effect at once, also for open connections
}

func (s *site) mirrors() {
	// No host at the first, no listener at the second; the third lacks the image, the last has it.
	empty := registries.Start(s, s.store, registries.Options{Port: 5003})
	const nobody = "http://172.30.0.250:5000"
	s.says("mirrors:\n  docker.io:\n    endpoint: [%q, %q, %q, %q]\n", "http://"+s.store.IP.String()+":1", nobody, empty.URL, s.plain.URL)
	began := time.Now()
	s.mustPull("docker.io/" + s.push("library/short"))
	s.Logf("past two dead mirrors and one without the image in %.1f s", time.Since(began).Seconds())
	if len(empty.Requests("HEAD", "/v2/library/short/manifests/1", "ns=docker.io", " 404 ")) == 0 {
		s.Errorf("the mirror before the last was not asked: %q", empty.Requests())
	}
	s.says("mirrors:\n  docker.io:\n    endpoint: [%q, %q]\n", s.plain.URL, empty.URL)
	before := len(empty.Requests())
	s.push("library/first")
	s.mustPull("first:1") // the short form of a name
	if len(empty.Requests()) != before {
		s.Error("a mirror was asked that comes after one that has the image")
	}
	s.says("mirrors:\n  \"*\":\n    endpoint: [%q]\n", s.plain.URL)
	s.mustPull("any.test/" + s.push("star/app"))
	s.saw("HEAD", "/v2/star/app/manifests/1", "ns=any.test")
}

func (s *site) tokens() {
	server := registries.StartTokens(s, s.store, 5010, &registries.TokenServer{
		Users: map[string]string{"me": registryPassword}, Refresh: identityToken, Refused: []string{"upstream/app", "upstream/other"}})
	r := registries.Start(s, s.store, registries.Options{Port: 5004, Storage: s.plain.Storage, TLS: s.ca, Tokens: server})
	s.push("ours/upstream-app")
	s.push("ours/upstream-other")
	say := func(auth string) {
		s.says("mirrors:\n  hub.test:\n    endpoint: [%q]\n    rewrite: {\"^upstream/(.*)\": \"ours/upstream-$1\"}\n"+
			"configs:\n  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt}\n    auth: {%s}\n", r.URL, r.Addr, auth)
	}
	say("username: me, password: " + wrongPassword)
	s.mustFail("hub.test/upstream/app:1", "401")
	say("username: me, password: " + registryPassword)
	s.mustPull("hub.test/upstream/app:1")
	say("identity_token: " + identityToken)
	s.mustPull("hub.test/upstream/other:1")
	for _, want := range []string{"me: repository:ours/upstream-app:pull", "refresh: repository:ours/upstream-other:pull"} {
		if !slices.Contains(server.Asked(), want) {
			s.Errorf("tokens were asked for with %q, not with %q", server.Asked(), want)
		}
	}
	for _, path := range []string{"/manifests/1", "/manifests/sha256:", "/blobs/sha256:"} {
		if len(r.Requests("/v2/ours/upstream-app"+path, " 200 ")) == 0 {
			s.Errorf("no request for %s by the name that the mirror has: %q", path, r.Requests())
		}
	}
	if list := s.node.Coracle("images", "list", "-o", "name"); !strings.Contains(list, "hub.test/upstream/app:1\n") || strings.Contains(list, "ours/") {
		s.Errorf("the image does not keep its name:\n%s", list)
	}
}

// podCredentials runs a pod whose secret has precedence over the file's login for the registry itself, and one whose
// secret is for a registry with a mirror that has its own login.
func (s *site) podCredentials() {
	r := registries.Start(s, s.store, registries.Options{Port: 5005, Storage: s.plain.Storage, TLS: s.ca, Users: map[string]string{"pod": podPassword}})
	mirror := registries.Start(s, s.store, registries.Options{Port: 5007, Storage: s.plain.Storage, TLS: s.ca, Users: map[string]string{"me": registryPassword}})
	const entry = "  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt}\n    auth: {username: me, password: %s}\n"
	s.says("mirrors:\n  pods.test:\n    endpoint: [%q]\nconfigs:\n"+entry+entry, mirror.URL, r.Addr, wrongPassword, mirror.Addr, registryPassword)
	auth := base64.StdEncoding.EncodeToString([]byte("pod:" + podPassword))
	s.node.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: pull}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"%[1]s":{"auth":"%[2]s"},"pods.test":{"auth":"%[2]s"}}}'}
---
apiVersion: v1
kind: Pod
metadata: {name: secret}
spec:
  imagePullSecrets: [{name: pull}]
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "%[1]s/%[3]s", command: [sleep, "36000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: mirrored}
spec:
  imagePullSecrets: [{name: pull}]
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "pods.test/%[4]s", command: [sleep, "36000"]}]
`, r.Addr, auth, s.push("pods/secret"), s.push("pods/other")))
	s.node.Kubectl("wait", "--for=condition=Ready", "pod/secret", "pod/mirrored", "--timeout=3m")
	if len(mirror.Requests("GET", "/v2/pods/other/blobs/", " 200 ")) == 0 {
		s.Errorf("the mirror was not used: %q", mirror.Requests())
	}
	s.mustFail(r.Addr+"/"+s.push("pods/nobody"), "401")
	s.node.Kubectl("delete", "pod", "--all", "--now")
}

// parallel pulls three images at once.
func (s *site) parallel() {
	s.says("mirrors:\n  par.test:\n    endpoint: [%q]\n", s.plain.URL)
	all := func(names ...string) {
		var pulls sync.WaitGroup
		for _, name := range names {
			pulls.Go(func() {
				if err := s.pull("par.test/" + name); err != nil {
					s.Errorf("pulling %s: %v", name, err)
				}
			})
		}
		pulls.Wait()
	}
	all(s.push("par/a"), s.push("par/b"), s.push("par/c"))
}

// exported exports an image from the node, removes it, and imports it.
func (s *site) exported() {
	const file = "/srv/images.tar.zst"
	s.says("mirrors:\n  out.test:\n    endpoint: [%q]\n", s.plain.URL)
	image := "out.test/" + s.push("out/app")
	s.mustPull(image)
	s.node.Run("mkdir", "-p", "/srv", "/var/lib/coracle/images")
	digest := s.digestOf(image)
	if out := s.node.Coracle("images", "export", image, "-o", file); !strings.HasPrefix(out, "exported 1 image into "+file) {
		s.Errorf("export says %s", out)
	}
	if _, err := s.node.TryCoracle("images", "export", image, "nowhere.test/x:1", "-o", "/srv/none.tar"); err == nil || !strings.Contains(err.Error(), "there is no image nowhere.test/x:1 here") {
		s.Errorf("exporting what is not there ends with %v", err)
	}
	if files := s.node.Run("ls", "-A", "/srv"); files != "images.tar.zst\n" {
		s.Errorf("left in the directory: %s", files)
	}
	if out := s.node.Coracle("images", "prune", "--dry-run"); !strings.Contains(out, "would remove "+image+" (") || s.digestOf(image) == "" {
		s.Errorf("prune --dry-run says %s", out)
	}
	if out := s.node.Coracle("images", "prune"); !strings.Contains(out, "removed "+image+" (") || !strings.Contains(out, "\nfreed ") {
		s.Errorf("prune says %s", out)
	}
	hosts.Eventually(s, 3*time.Minute, func() error {
		removeEnded(s.node)
		s.node.Coracle("images", "prune")
		for _, name := range strings.Fields(s.node.Coracle("images", "list", "-o", "name")) {
			if !strings.HasPrefix(name, "coracle.io/pause:") {
				return fmt.Errorf("%s is left, which nobody uses", name)
			}
		}
		return nil
	})
	s.node.Coracle("images", "import", file)
	if got := s.digestOf(image); got != digest {
		s.Errorf("the image came back as %s, and was %s", got, digest)
	}
	if s.node.Coracle("images", "prune"); s.digestOf(image) == "" {
		s.Error("an imported image is pruned")
	}
	s.node.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: back}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: main, imagePullPolicy: Never, image: " +
		image + ", command: [sleep, '36000']}]}\n")
	s.node.Kubectl("wait", "--for=condition=Ready", "pod/back", "--timeout=3m")
	if out := s.node.Coracle("images", "prune", "--imported"); strings.Contains(out, image) {
		s.Errorf("an image that a container uses is pruned: %s", out)
	}
	s.node.Kubectl("delete", "pod", "back", "--now")
	hosts.Eventually(s, 3*time.Minute, func() error {
		removeEnded(s.node)
		return contains("prune --imported", s.node.Coracle("images", "prune", "--imported"), image)
	})
	listed := "out.test/" + s.push("out/listed")
	if err := os.WriteFile(s.node.Data("images", "mine.txt"), []byte("# wanted\n"+listed+"\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	hosts.Eventually(s, time.Minute, func() error {
		if s.digestOf(listed) == "" {
			return errors.New("an image of a list is not pulled")
		}
		return nil
	})
}

// digestOf is an image's digest on the node, "" if the node does not have it.
func (s *site) digestOf(image string) string {
	s.Helper()
	var all []struct{ Name, Digest string }
	if err := json.Unmarshal([]byte(s.node.Coracle("images", "list", "-o", "json")), &all); err != nil {
		s.Fatal(err)
	}
	for _, img := range all {
		if img.Name == image {
			return img.Digest
		}
	}
	return ""
}

func (s *site) brokenFile() {
	s.says("mirrors:\n  kept.test:\n    endpoint: [%q]\n", s.plain.URL)
	s.mustPull("kept.test/" + s.push("kept/before"))
	s.says("mirrors:\n  kept.test:\n    endpoints: [%q]\n", s.plain.URL)
	s.mustPull("kept.test/" + s.push("kept/after"))
	const why = registriesFile + ", line 3: mirrors.kept.test.endpoints: there is no such setting"
	if out := s.node.Coracle("status"); !strings.Contains(out, why) {
		s.Errorf("status does not say what is wrong:\n%s", out)
	}
	if !strings.Contains(s.server.Log(), why) {
		s.Error("the log does not say what is wrong")
	}
	if out, err := s.node.TryCoracle("check", "--only", "registries"); err == nil || !strings.Contains(out+err.Error(), why) {
		s.Errorf("check does not say what is wrong: %s %v", out, err)
	}
	if err := os.Remove(s.node.Path(registriesFile)); err != nil {
		s.Fatal(err)
	}
	if err := s.pull("kept.test/" + s.push("kept/gone")); err == nil {
		s.Error("a mirror is in force whose file is gone")
	}
	hosts.Eventually(s, time.Minute, func() error {
		if out := s.node.Coracle("status"); strings.Contains(out, why) {
			return errors.New("status tells of what has been mended")
		}
		return nil
	})
}

// chart installs a chart from a mirror with a rewritten name, its own login and CA. The registry in the chart's address
// does not exist.
func (s *site) chart() {
	r := registries.Start(s, s.store, registries.Options{Port: 5008, TLS: s.ca, Users: map[string]string{"me": "secret", "reader": registryPassword}})
	pushChart(s.T, s.store, r, s.ca, "1.0.0", chartfile.Pack(s.T, "web", map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"templates/here.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: here}\n",
	}))
	if err := os.Remove(s.node.Path(registriesFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
	s.node.Apply(helmChart("mirrored", "chart: oci://charts.test/apps/web"))
	becomes(s.T, s.node, "helmchart/mirrored", reason, "NotFetched")
	s.says("mirrors:\n  charts.test:\n    endpoint: [%q]\n    rewrite: {\"^apps/(.*)\": \"charts/$1\"}\nconfigs:\n  %q:\n    tls: {ca_file: /etc/ssl/theirs.crt}\n"+
		"    auth: {username: reader, password: %s}\n", r.URL, r.Addr, registryPassword)
	s.node.Kubectl("wait", "helmchart/mirrored", "--for=condition=Ready", "--timeout=3m") // succeeds at the next try
	s.node.Kubectl("get", "configmap", "here")
	for _, path := range []string{"/v2/charts/web/tags/list", "/v2/charts/web/manifests/1.0.0"} {
		if len(r.Requests("GET", path, "ns=charts.test", " 200 ")) == 0 {
			s.Errorf("the mirror was not asked for %s: %q", path, r.Requests())
		}
	}
	s.node.Kubectl("delete", "helmchart", "mirrored", "--timeout=3m")
}

// agent pulls on another node, for a registry with mirrors and --disable-default-registry-endpoint. With an invalid
// file it does not start.
func (s *site) agent() {
	h := hosts.New(s, s.wire, "agent", hosts.Options{})
	args := []string{siteToken, "--server=https://" + s.server.Host.IP.String() + ":6443", "--disable-default-registry-endpoint"}
	writeHost(s.T, h, registriesFile, "mirrors: {}\nmirror: {}\n")
	broken := h.StartAgent(args...)
	if err := broken.Wait(2 * time.Minute); err == nil || !strings.Contains(broken.Log(), registriesFile+", line 2: mirror: there is no such setting") {
		s.Errorf("with a broken file an agent ends with %v:\n%s", err, broken.Log())
	}
	empty := registries.Start(s, s.store, registries.Options{Port: 5006})
	writeHost(s.T, h, registriesFile, fmt.Sprintf("mirrors:\n  %q:\n    endpoint: [%q]\n  fine.test:\n    endpoint: [%q]\n", s.plain.Addr, empty.URL, s.plain.URL))
	h.StartAgent(args...)
	fine, lacking := s.push("agents/fine"), s.push("agents/lacking")
	hosts.Eventually(s, 2*time.Minute, func() error {
		_, err := h.TryCoracle("crictl", "pull", "fine.test/"+fine)
		return err
	})
	out, err := h.TryCoracle("crictl", "pull", s.plain.Addr+"/"+lacking)
	if err == nil || !strings.Contains(err.Error(), "not found") || len(s.plain.Requests("GET", "/v2/agents/lacking/")) > 0 {
		s.Errorf("the registry itself was asked: %s %v", out, err)
	}
}
