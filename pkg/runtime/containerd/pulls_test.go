package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	ociregistry "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// fake is a registry with one manifest under every name. It writes down who asks for what.
type fake struct {
	*httptest.Server
	user string // "" lets everybody in; else USER:PASSWORD
	cdn  string // where content is, if it is elsewhere
	lack bool   // it has nothing

	mu    sync.Mutex
	asked []string
}

const manifest = `{"schemaVersion":2}`

func newFake(t *testing.T, f *fake) *fake {
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) addr() string { return f.Listener.Addr().String() }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	f.mu.Lock()
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+user))
	f.mu.Unlock()
	switch {
	case f.user != "" && f.user != user+":"+password:
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	case f.lack:
		w.WriteHeader(http.StatusNotFound)
	case f.cdn != "" && r.Method == http.MethodGet:
		http.Redirect(w, r, f.cdn, http.StatusTemporaryRedirect)
	default:
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", digest.FromString(manifest).String())
		w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, manifest)
		}
	}
}

// requests are what was asked so far.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// secret is what a pod brings.
type secret struct {
	user, password string
	err            error
}

func (s secret) GetCredentials(_ context.Context, _, host string) (ociregistry.Credentials, error) {
	return ociregistry.Credentials{Host: host, Username: s.user, Secret: s.password}, s.err
}

func newPuller(t *testing.T, text string, dirs ...string) *puller {
	t.Helper()
	file := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &puller{Pulls: Pulls{File: registries.NewLive(file)}, dirs: dirs, joined: strings.Join(dirs, ":")}
}

// fetch resolves an image and gets its manifest, as containerd's transfer service does.
func fetch(t *testing.T, p *puller, ref string, pod *secret) error {
	t.Helper()
	opts := []ociregistry.Opt{ociregistry.WithHostDir(p.joined)}
	if pod != nil {
		opts = append(opts, ociregistry.WithCredentials(*pod))
	}
	r, err := ociregistry.NewOCIRegistry(t.Context(), ref, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.source(t.Context(), r)
	if err != nil {
		return err
	}
	if s == nil {
		t.Fatal("the pull is left to containerd")
	}
	defer s.Close()
	name, desc, err := s.Resolve(t.Context())
	if err != nil {
		return err
	}
	fetcher, err := s.Fetcher(t.Context(), name)
	if err != nil {
		return err
	}
	body, err := fetcher.Fetch(t.Context(), desc)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err == nil && string(data) != manifest {
		err = fmt.Errorf("got %q", data)
	}
	return err
}

func TestOrder(t *testing.T) {
	mirror, own := newFake(t, &fake{lack: true}), newFake(t, &fake{})
	dead := httptest.NewServer(nil)
	dead.Close()
	p := newPuller(t, fmt.Sprintf("mirrors: {%q: {endpoint: [%q, %q], rewrite: {'^a/': 'z/'}}}", own.addr(), dead.URL, mirror.URL))
	if err := fetch(t, p, own.addr()+"/a/b:1", nil); err != nil {
		t.Fatal(err)
	}
	sum := digest.FromString(manifest).String()
	if got := mirror.requests(); !slices.Equal(got, []string{"HEAD /v2/z/b/manifests/1", "GET /v2/z/b/manifests/" + sum}) {
		t.Errorf("the mirror was asked %q", got)
	}
	if got := own.requests(); !slices.Equal(got, []string{"HEAD /v2/a/b/manifests/1", "GET /v2/a/b/manifests/" + sum}) {
		t.Errorf("the registry was asked %q", got)
	}
	p.NoDefault = true
	if err := fetch(t, p, own.addr()+"/a/b@"+sum, nil); !errdefs.IsNotFound(err) || len(own.requests()) != 2 {
		t.Errorf("without the registry itself: %v, %q", err, own.requests())
	}
}

func TestLogin(t *testing.T) {
	pod := &secret{user: "pod", password: "p"}
	for _, tt := range []struct {
		name, mirror, own string // who is let in
		file              string // configs of the two
		pod               *secret
		want              []string // whom the mirror and the registry saw
		fails             string
	}{
		{"a pod's at the registry", "none", "pod:p", `{"OWN": {auth: {username: file, password: f}}}`, pod, []string{"", "pod"}, ""},
		{"the file's without a pod's", "none", "file:f", `{"OWN": {auth: {username: file, password: f}}}`, nil, []string{"", "file"}, ""},
		{"a pod's that is empty", "none", "file:f", `{"OWN": {auth: {username: file, password: f}}}`, &secret{}, []string{"", "file"}, ""},
		{"the file's at the mirror", "file:f", "none", `{"MIRROR": {auth: {username: file, password: f}}}`, pod, []string{"file"}, ""},
		{"a pod's at a mirror without one", "pod:p", "none", `{"OWN": {auth: {username: file, password: f}}}`, pod, []string{"pod"}, ""},
		{"a pod's is not tried after the mirror's", "pod:p", "other:o", `{"MIRROR": {auth: {username: file, password: f}}}`, pod, []string{"file", "pod"}, "401"},
		{"a pod's that cannot be read", "pod:p", "pod:p", `{}`, &secret{err: errors.New("broken")}, []string{"", ""}, "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mirror, own := newFake(t, &fake{user: tt.mirror, lack: tt.mirror == "none"}), newFake(t, &fake{user: tt.own})
			if tt.mirror == "none" {
				mirror.user = ""
			}
			configs := strings.NewReplacer("MIRROR", mirror.addr(), "OWN", own.addr()).Replace(tt.file)
			p := newPuller(t, fmt.Sprintf("mirrors: {%q: {endpoint: [%q]}}\nconfigs: %s", own.addr(), mirror.URL, configs))
			err := fetch(t, p, own.addr()+"/app:1", tt.pod)
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("got %v, want %q", err, tt.fails)
			}
			for i, who := range tt.want {
				got := []*fake{mirror, own}[i].requests()
				if last := got[len(got)-1]; who != "" && !strings.HasSuffix(last, " "+who) || who == "" && strings.Count(last, " ") != 1 {
					t.Errorf("%d saw %q, not %q", i, got, who)
				}
			}
		})
	}
}

// TestLoginByHosts sees that a registry of a hosts.toml gets the pod's credentials first, also where it is asked by another name.
func TestLoginByHosts(t *testing.T) {
	p := newPuller(t, `configs: {docker.io: {auth: {username: file, password: f}}, "mirror.test": {auth: {username: file, password: f}}}`)
	file, err := p.File.Now()
	if err != nil {
		t.Fatal(err)
	}
	r, err := ociregistry.NewOCIRegistry(t.Context(), "docker.io/library/app:1", ociregistry.WithCredentials(secret{user: "pod", password: "p"}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.source(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for host, want := range map[string]string{"registry-1.docker.io": "pod", "docker.io": "pod", "mirror.test": "file"} {
		user, _, err := (&pull{puller: p, file: file, pod: s.pod}).loginAt("docker.io")(host)
		if user != want || err != nil {
			t.Errorf("%s is told %q, %v; want %q", host, user, err, want)
		}
	}
}

// TestRedirect sees that who is redirected to learns no password, even if it asks.
func TestRedirect(t *testing.T) {
	cdn := newFake(t, &fake{})
	own := newFake(t, &fake{user: "me:p", cdn: "http://localhost" + cdn.addr()[strings.LastIndex(cdn.addr(), ":"):] + "/content"})
	p := newPuller(t, fmt.Sprintf("configs: {%q: {auth: {username: me, password: p}}}", own.addr()))
	if err := fetch(t, p, own.addr()+"/app:1", nil); err != nil {
		t.Fatal(err)
	}
	if got := cdn.requests(); !slices.Equal(got, []string{"GET /content"}) {
		t.Errorf("the other server saw %q", got)
	}
	cdn.user = "me:p"
	if err := fetch(t, p, own.addr()+"/app:1", nil); err == nil {
		t.Error("it is told the password when it asks")
	}
}

// TestLive sees that changes count from one pull to the next, and that a file that was never right lets nothing pass.
func TestLive(t *testing.T) {
	own := newFake(t, &fake{user: "me:new"})
	p := newPuller(t, "nonsense: true")
	var said []string
	p.Report = func(err error) { said = append(said, fmt.Sprint(err)) }
	write := func(password string) {
		t.Helper()
		path := p.File.Path()
		if err := os.WriteFile(path, fmt.Appendf(nil, "configs: {%q: {auth: {username: me, password: %s}}}", own.addr(), password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := fetch(t, p, own.addr()+"/app:1", nil); err == nil || !strings.Contains(err.Error(), "line 1: nonsense") || len(own.requests()) > 0 {
			t.Errorf("with a broken file: %v, %q", err, own.requests())
		}
	}
	write("old")
	if err := fetch(t, p, own.addr()+"/app:1", nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with a wrong password: %v", err)
	}
	write("new")
	if err := fetch(t, p, own.addr()+"/app:1", nil); err != nil {
		t.Error(err)
	}
	if len(said) != 2 || !strings.Contains(said[0], "nonsense") || said[1] != "<nil>" {
		t.Errorf("reported: %q", said)
	}
}

// TestLeft sees that pulls with settings of their own are containerd's.
func TestLeft(t *testing.T) {
	p := newPuller(t, "", "/a", "/b")
	for name, tt := range map[string]struct {
		opts []ociregistry.Opt
		left bool
	}{
		"CRI":          {[]ociregistry.Opt{ociregistry.WithHostDir("/a:/b"), ociregistry.WithCredentials(secret{})}, false},
		"ctr":          {nil, false},
		"--hosts-dir":  {[]ociregistry.Opt{ociregistry.WithHostDir("/c")}, true},
		"--plain-http": {[]ociregistry.Opt{ociregistry.WithDefaultScheme("http")}, true},
		"--http-dump":  {[]ociregistry.Opt{ociregistry.WithHTTPDebug()}, true},
	} {
		r, err := ociregistry.NewOCIRegistry(t.Context(), "a.test/b:1", tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.source(t.Context(), r)
		if err != nil || (s == nil) != tt.left {
			t.Errorf("%s: %v, %v", name, s, err)
		}
		if s != nil {
			s.Close()
			if _, _, err := s.pod.Get("a.test"); s.pod.known && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: a pull that is over gives credentials: %v", name, err)
			}
		}
	}
}

func TestHostDir(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{a + "/_default", b + "/_default", b + "/r.test", b + "/port.test_5000_", c + "/r.test", c + "/only.test"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &puller{dirs: []string{"/nowhere", a, b, c}}
	for host, want := range map[string]string{
		"r.test": b + "/r.test", "only.test": c + "/only.test", "port.test:5000": b + "/port.test_5000_", "none.test": a + "/_default",
	} {
		if got, err := p.hostDir(host); got != want || err != nil {
			t.Errorf("%s: %s, %v", host, got, err)
		}
	}
	p.dirs = []string{c}
	if _, err := p.hostDir("none.test"); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}

// TestHook fails if another containerd no longer has the one transfer service that CRI and ctr use.
func TestHook(t *testing.T) {
	transfers := func() (out []plugin.Registration) {
		for _, r := range registry.Graph(nil) {
			if strings.HasPrefix(r.URI(), "io.containerd.transfer.v1.") {
				out = append(out, r)
			}
		}
		return out
	}
	before, all := transfers(), len(registry.Graph(nil))
	p := &puller{}
	Containerd{}.hook(p)
	after := transfers()
	if len(before) != 1 || len(after) != 1 || after[0].URI() != transferPlugin || len(registry.Graph(nil)) != all {
		t.Fatalf("transfer services: %v, then %v", before, after)
	}
	inner := transferrer{}
	got, err := p.wrap(transferrer{inner, &puller{}}, nil)
	if ours, ok := got.(transferrer); err != nil || !ok || ours.pulls != p || ours.Transferrer != inner {
		t.Errorf("around ours is %v, %v", got, err)
	}
	if _, err := p.wrap("something", nil); err == nil {
		t.Error("something else is taken for a transfer service")
	}
}

func TestPastUs(t *testing.T) {
	for _, tt := range []struct{ name, settings, file, want string }{
		{"plain", "", "mirrors: {a.test: {}}", ""},
		{"local pull", "use_local_image_pull = true", "mirrors: {a.test: {}}", "use_local_image_pull = true"},
		{"local pull without the file", "use_local_image_pull = true", "", ""},
		{"local pull with a broken file", "use_local_image_pull = true", "x: 1", "use_local_image_pull"},
		{"downloads", "max_concurrent_downloads = 5", "mirrors: {a.test: {}}", "max_concurrent_downloads = 5"},
		{"as it is", "max_concurrent_downloads = 3", "mirrors: {a.test: {}}", ""},
		{"credentials", "[plugins.\"io.containerd.cri.v1.images\".registry.configs.\"a.test\".auth]\nusername = \"me\"\npassword = \"s3cret\"", "mirrors: {a.test: {}}", "registry.configs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := example()
			c.ConfigFile, c.DropIns = filepath.Join(t.TempDir(), "containerd.toml"), t.TempDir()
			if _, err := c.write(); err != nil {
				t.Fatal(err)
			}
			text := "version = 4\n[plugins.\"io.containerd.cri.v1.images\"]\n" + tt.settings + "\n"
			if err := os.WriteFile(filepath.Join(c.DropIns, "mine.toml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var config *srvconfig.Config
			config, err := load(t.Context(), c.ConfigFile, c.DropIns)
			if err != nil {
				t.Fatal(err)
			}
			err = newPuller(t, tt.file).checkPulls(config)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDead(t *testing.T) {
	d := &failedHosts{}
	d.note("a", errors.New("the answer is broken"))
	_, err := http.Get("http://127.0.0.1:1")
	d.note("b", err)
	if d.at("a") != nil || d.at("b") == nil || !strings.Contains(d.at("b").Error(), "refused") {
		t.Errorf("a: %v, b: %v", d.at("a"), d.at("b"))
	}
	began := time.Now()
	_, err = (&renamer{next: http.DefaultTransport, failed: d, scheme: "http", host: "b"}).RoundTrip(httptest.NewRequest(http.MethodGet, "http://b/v2/", nil))
	if err == nil || time.Since(began) > time.Second {
		t.Errorf("a dead host is dialed again: %v", err)
	}
}

// TestLocalTLS sees that a registry of this machine is asked by TLS where the file says something of it, if it speaks TLS.
func TestLocalTLS(t *testing.T) {
	plain := newFake(t, &fake{})
	secured := &fake{Server: httptest.NewUnstartedServer(nil)}
	secured.Config.Handler = secured
	secured.StartTLS()
	defer secured.Close()
	p := newPuller(t, `configs: {"*": {tls: {insecure_skip_verify: true}}}`)
	for _, f := range []*fake{plain, secured} {
		if err := fetch(t, p, f.addr()+"/app:1", nil); err != nil {
			t.Errorf("%s: %v", f.URL, err)
		}
	}
}

// TestTransports sees that connections are kept to those whom the file names, however many registries images name.
func TestTransports(t *testing.T) {
	named, unnamed := newFake(t, &fake{}), newFake(t, &fake{})
	p := newPuller(t, fmt.Sprintf("mirrors: {%q: {}, '*': {}}", named.addr()))
	for _, f := range []*fake{named, unnamed, named} {
		if err := fetch(t, p, f.addr()+"/app:1", nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.transports) != 1 {
		t.Errorf("%d are kept", len(p.transports))
	}
}

// TestWatch: a mistake is reported without a pull, and that it is corrected.
func TestWatch(t *testing.T) {
	p := newPuller(t, "")
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		p.Report = func(err error) { reported = append(reported, err) }
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { p.watch(ctx) })
		for _, text := range []string{"nonsense: true", "mirrors: {}", "mirrors: {}"} {
			if err := os.WriteFile(p.File.Path(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * checkInterval)
			synctest.Wait()
		}
		stop()
		watching.Wait()
		if len(reported) != 2 || reported[0] == nil || reported[1] != nil {
			t.Errorf("reported %v", reported)
		}
	})
}
