package helm

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// endpoint is a registry with the chart under any name. It writes down who asks for what.
type endpoint struct {
	*httptest.Server
	charts http.HandlerFunc
	login  string // "" lets everybody in; else USER:PASSWORD, or a refresh token
	at     string // where its API is, if not at /v2
	pages  bool   // its list of tags has two

	mu    sync.Mutex
	asked []string
}

// fakes are the registries of a test.
type fakes map[string]*endpoint

func startEndpoints(t *testing.T) fakes {
	const me = "me:hunter2"
	all := fakes{
		"open": {}, "own": {login: me}, "mirror": {login: me}, "proxied": {at: "/v2/hub", pages: true}, "token": {login: "refresh"}, "secure": {login: me},
	}
	for name, e := range all {
		e.charts = chartRegistry(t)
		e.Server = httptest.NewUnstartedServer(e)
		if name == "secure" {
			e.StartTLS()
		} else {
			e.Start()
		}
		t.Cleanup(e.Close)
	}
	return all
}

func (e *endpoint) addr() string { return e.Listener.Addr().String() }

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	authorization := r.Header.Get("Authorization")
	user, password, _ := r.BasicAuth()
	if r.URL.Path == "/token" {
		if r.FormValue("refresh_token") == e.login {
			_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "short"})
		}
		return
	}
	e.mu.Lock()
	e.asked = append(e.asked, strings.TrimSpace(r.URL.RequestURI()+" "+password))
	e.mu.Unlock()
	switch rest, known := strings.CutPrefix(r.URL.Path, e.at+"/"); {
	case e.login == "refresh" && authorization != "Bearer short":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test"`, e.URL))
		w.WriteHeader(http.StatusUnauthorized)
	case strings.Contains(e.login, ":") && e.login != user+":"+password:
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	case !known || strings.HasPrefix(rest, "hub/"):
		w.WriteHeader(http.StatusNotFound)
	case e.pages && strings.HasSuffix(rest, "/tags/list") && r.FormValue("last") == "":
		w.Header().Set("Link", fmt.Sprintf(`<%s?last=x>; rel="next"`, r.URL.Path))
		_, _ = w.Write([]byte(`{"tags": ["0.9.0"]}`))
	default:
		e.charts(w, r)
	}
}

// was reports whether something was asked for that begins so.
func (e *endpoint) was(asked string) bool {
	return slices.ContainsFunc(e.asked, func(a string) bool { return strings.HasPrefix(a, asked) })
}

// replaced puts addresses for {NAME}.
func (f fakes) replaced(text string) string {
	for name, e := range f {
		text = strings.ReplaceAll(text, "{"+name+"}", e.addr())
	}
	return text
}

func TestMirrorsOfCharts(t *testing.T) {
	dir := t.TempDir()
	me, other := login{"me", "hunter2"}, login{"me", "other"}
	const auth = `{username: me, password: hunter2}`
	for _, tt := range []struct {
		name, file, chart, version string
		with                       access
		noDefault                  bool
		want                       string // the chart's version, or what the error says
		asked                      string // NAME PATH, at which somebody was asked
		never                      string // NAME PATH
	}{
		{name: "a mirror", file: `mirrors: {r.test: {endpoint: ["http://{open}"], rewrite: {"^charts/(.*)": "ours/$1"}}}`, chart: "r.test/charts/web", version: "<1.1",
			want: "1.0.0", asked: "open /v2/ours/web/manifests/1.0.0?ns=r.test"},
		{name: "its newest", file: `mirrors: {"*": {endpoint: ["http://{open}"]}}`, chart: "r.test/charts/web", want: "1.1.0+b", asked: "open /v2/charts/web/tags/list?ns=r.test"},
		{name: "docker's name", file: `mirrors: {docker.io: {endpoint: ["http://{open}"]}}`, chart: "registry-1.docker.io/charts/web:1.0.0", want: "1.0.0",
			asked: "open /v2/charts/web/manifests/1.0.0?ns=docker.io"},
		{name: "an API elsewhere, in pages", file: `mirrors: {r.test: {endpoint: ["http://{proxied}/v2/hub"]}}`, chart: "r.test/charts/web", want: "1.1.0+b",
			asked: "proxied /v2/hub/charts/web/tags/list?last=x&ns=r.test"},
		{name: "the file's login", file: `{mirrors: {r.test: {endpoint: ["http://{mirror}"]}}, configs: {"{mirror}": {auth: ` + auth + `}}}`, chart: "r.test/charts/web:1.0.0",
			with: access{login: other}, want: "1.0.0", never: "mirror /v2/charts/web/manifests/1.0.0?ns=r.test other"},
		{name: "a token", file: `{mirrors: {r.test: {endpoint: ["http://{token}"]}}, configs: {"{token}": {auth: {identity_token: refresh}}}}`, chart: "r.test/charts/web:1.0.0", want: "1.0.0"},
		{name: "the chart's login stays", file: `mirrors: {r.test: {endpoint: ["http://{mirror}"]}}`, chart: "r.test/charts/web:1.0.0", with: access{login: me}, noDefault: true,
			want: "registries.yaml", asked: "mirror /v2/charts/web/manifests/1.0.0?ns=r.test", never: "mirror /v2/charts/web/manifests/1.0.0?ns=r.test hunter2"},
		{name: "a login that names the mirror", file: `mirrors: {r.test: {endpoint: ["http://{mirror}"]}}`, chart: "r.test/charts/web:1.0.0",
			with: access{registries: map[string]login{"{mirror}": me}}, want: "1.0.0"},
		{name: "nobody there, then itself", file: `mirrors: {"{own}": {endpoint: ["http://127.0.0.1:1"], rewrite: {charts: x}}}`, chart: "{own}/charts/web:1.0.0",
			with: access{login: me}, want: "1.0.0", asked: "own /v2/charts/web/manifests/1.0.0 hunter2"},
		{name: "nobody there, and not itself", file: `mirrors: {"{own}": {endpoint: ["http://127.0.0.1:1"]}}`, chart: "{own}/charts/web:1.0.0", with: access{login: me},
			noDefault: true, want: "127.0.0.1:1", never: "own /"},
		{name: "nobody", file: `mirrors: {r.test: {}}`, chart: "r.test/charts/web", noDefault: true, want: "names no endpoint for r.test"},
		{name: "the file's login at the registry", file: `configs: {"{own}": {auth: ` + auth + `}}`, chart: "{own}/charts/web:1.0.0", want: "1.0.0"},
		{name: "the chart's goes before", file: `configs: {"{own}": {auth: ` + auth + `}}`, chart: "{own}/charts/web:1.0.0", with: access{login: other}, want: "401"},
		{name: "TLS of the file", file: `{mirrors: {"{secure}": {endpoint: ["https://{secure}"]}}, configs: {"{secure}": {auth: ` + auth + `, tls: {ca_file: CA}}}}`,
			chart: "{secure}/charts/web:1.0.0", noDefault: true, want: "1.0.0"},
		{name: "TLS of the chart goes before", file: `{mirrors: {"{secure}": {endpoint: ["https://{secure}"]}}, configs: {"{secure}": {auth: ` + auth + `, tls: {}}}}`,
			chart: "{secure}/charts/web:1.0.0", with: access{ownTLS: true}, noDefault: true, want: "1.0.0"},
		{name: "TLS of the file at a mirror", file: `{mirrors: {r.test: {endpoint: ["https://{secure}"]}}, configs: {"{secure}": {auth: ` + auth + `, tls: {ca_file: CA}}}}`,
			chart: "r.test/charts/web:1.0.0", want: "1.0.0"},
		{name: "a chart's carelessness is not for mirrors", file: `{mirrors: {r.test: {endpoint: ["https://{secure}"]}}, configs: {"{secure}": {auth: ` + auth + `}}}`,
			chart: "r.test/charts/web:1.0.0", with: access{ownTLS: true}, noDefault: true, want: "certificate", never: "secure /"},
		{name: "another registry", file: `mirrors: {r.test: {endpoint: ["http://{open}"]}}`, chart: "{own}/charts/web:1.0.0", with: access{login: me, plainHTTP: true}, want: "1.0.0"},
		{name: "tag and version", file: `mirrors: {"*": {endpoint: ["http://{open}"]}}`, chart: "r.test/charts/web:1.0.0", version: "2.0.0", want: "the address has tag 1.0.0", never: "open /"},
		{name: "a broken file", file: `mirror: {}`, chart: "r.test/charts/web", want: "line 1: mirror: there is no such setting"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := startEndpoints(t)
			ca, file := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "registries.yaml")
			write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: all["secure"].Certificate().Raw})))
			write(t, file, strings.ReplaceAll(all.replaced(tt.file), "CA", ca))
			client, err := newClient(nil, tt.with.ownTLS)
			if err != nil {
				t.Fatal(err)
			}
			a := tt.with
			a.client, a.mirrors, a.noDefault, a.registries = client, registries.NewLive(file), tt.noDefault, map[string]login{}
			for host, l := range tt.with.registries {
				a.registries[all.replaced(host)] = l
			}
			c, err := source{spec: chartSpec{Chart: "oci://" + all.replaced(tt.chart), Version: tt.version}, charts: "/charts"}.fetch(t.Context(), a)
			if err == nil && c.Metadata.Version != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want %s", c, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells a secret: %v", err)
			}
			if who, path, ok := strings.Cut(tt.asked, " "); ok && !all[who].was(path) {
				t.Errorf("%s was asked for %q", who, all[who].asked)
			}
			if who, path, ok := strings.Cut(tt.never, " "); ok && all[who].was(path) {
				t.Errorf("%s was asked for %q", who, all[who].asked)
			}
		})
	}
}

// TestRegistriesChange: what the file says counts from the next try on.
func TestRegistriesChange(t *testing.T) {
	all := startEndpoints(t)
	file := filepath.Join(t.TempDir(), "registries.yaml")
	client, err := newClient(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	a := access{client: client, mirrors: registries.NewLive(file), plainHTTP: true}
	get := func() error {
		_, err := a.oci(t.Context(), "oci://r.invalid/charts/web:1.0.0", "")
		return err
	}
	if err := get(); err == nil {
		t.Fatal("a chart without a registry")
	}
	write(t, file, all.replaced(`mirrors: {r.invalid: {endpoint: ["http://{open}"]}}`))
	if err := get(); err != nil {
		t.Error(err)
	}
	write(t, file, `mirrors: {r.invalid: {endpoint: "x"}}`)
	if err := get(); err != nil {
		t.Errorf("a broken file is in force: %v", err)
	}
}

// TestIndexAndFile: what a chart trusts for a repository does not count for a login of the file.
func TestIndexAndFile(t *testing.T) {
	all := startEndpoints(t)
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, all.replaced("entries: {web: [{version: 1.0.0, urls: ['oci://{own}/charts/web:1.0.0']}]}"))
	}))
	t.Cleanup(index.Close)
	file := filepath.Join(t.TempDir(), "registries.yaml")
	write(t, file, all.replaced(`configs: {"{own}": {auth: {username: me, password: hunter2}}}`))
	for _, tt := range []struct {
		name string
		with access
		ok   bool
	}{
		{"trusting nobody else", access{}, true},
		{"trusting another authority", access{ownTLS: true}, false},
		{"without TLS", access{plainHTTP: true}, false},
		{"with a login for everywhere", access{plainHTTP: true, loginForAllHosts: true, login: login{"me", "hunter2"}}, true},
	} {
		client, err := newClient(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		tt.with.client, tt.with.mirrors, tt.with.memorySlot = client, registries.NewLive(file), make(chan struct{}, 1)
		if _, err = tt.with.fromRepository(t.Context(), index.URL, "web", ""); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, tenant := range []bool{false, true} {
		client, err := newClient(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		a := access{client: client, mirrors: registries.NewLive(file), plainHTTP: true, tenant: tenant}
		if _, err := a.oci(t.Context(), all.replaced("oci://{own}/charts/web:1.0.0"), ""); (err == nil) == tenant {
			t.Errorf("without TLS, a tenant's: %v: %v", tenant, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
