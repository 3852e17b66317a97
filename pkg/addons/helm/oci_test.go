package helm

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// newRegistry has the chart web in versions 1.0.0 and 1.1.0+b, behind a login, without TLS.
func newRegistry(t *testing.T) (host string) {
	charts := chartRegistry(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "hunter2" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		charts(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// chartRegistry has the chart under any name, for everybody.
func chartRegistry(t *testing.T) http.HandlerFunc {
	blobs := map[string][]byte{} // by digest
	put := func(data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		blobs[digest] = data
		return map[string]any{"digest": digest, "size": len(data)}
	}
	tags := map[string]string{} // the manifest's digest
	push := func(tag, kind string, archive []byte) {
		layer := put(archive)
		layer["mediaType"] = kind
		config := put([]byte("{}"))
		config["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
		data, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layer},
		})
		if err != nil {
			t.Fatal(err)
		}
		tags[tag] = put(data)["digest"].(string)
	}
	push("1.0.0", chartLayers[0], simple(t, "1.0.0"))
	push("1.1.0_b", chartLayers[1], simple(t, "1.1.0+b"))
	push("image", "application/vnd.oci.image.layer.v1.tar+gzip", simple(t, "1.0.0"))
	push("forged", chartLayers[0], simple(t, "3.0.0"))
	for digest, data := range blobs {
		if strings.Contains(string(data), chartLayers[0]) && tags["forged"] == digest {
			var m struct{ Layers []struct{ Digest string } }
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			forged := append([]byte{}, blobs[m.Layers[0].Digest]...)
			forged[len(forged)-1]++
			blobs[m.Layers[0].Digest] = forged
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case strings.HasSuffix(r.URL.Path, "/endless/tags/list"):
			w.Header().Set("Link", "<"+r.URL.Path+`?last=1>; rel="next"`)
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "charts/endless", "tags": slices.Repeat([]string{"1.0.0"}, mostTags/2)})
			return
		case strings.HasSuffix(r.URL.Path, "/tags/list"):
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "charts/web", "tags": []string{"1.0.0", "1.1.0_b", "image", "latest"}})
			return
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			if digest, ok := tags[name]; ok {
				name = digest
			}
		}
		data, ok := blobs[name]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Docker-Content-Digest", name)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data)
	}
}

func TestOCI(t *testing.T) {
	host := newRegistry(t)
	me := login{"me", "hunter2"}
	for _, tt := range []struct {
		name string
		spec chartSpec
		with access
		want string // the chart's version, or what the error says
	}{
		{"newest", chartSpec{Chart: "oci://" + host + "/charts/web"}, access{login: me}, "1.1.0+b"},
		{"version", chartSpec{Chart: "oci://" + host + "/charts/web", Version: "1.0.0"}, access{login: me}, "1.0.0"},
		{"version with a plus", chartSpec{Chart: "oci://" + host + "/charts/web", Version: "1.1.0+b"}, access{login: me}, "1.1.0+b"},
		{"range", chartSpec{Chart: "oci://" + host + "/charts/web", Version: "<1.1"}, access{login: me}, "1.0.0"},
		{"tag", chartSpec{Chart: "oci://" + host + "/charts/web:1.0.0"}, access{login: me}, "1.0.0"},
		{"as a repository", chartSpec{Repo: "oci://" + host + "/charts/", Chart: "web", Version: "1.0.0"}, access{login: me}, "1.0.0"},
		{"login of docker", chartSpec{Chart: "oci://" + host + "/charts/web:1.0.0"}, access{registries: map[string]login{host: me}}, "1.0.0"},
		{"no login", chartSpec{Chart: "oci://" + host + "/charts/web:1.0.0"}, access{}, "check dockerRegistrySecret"},
		{"wrong login", chartSpec{Chart: "oci://" + host + "/charts/web:1.0.0"}, access{login: login{"me", "x"}}, "check dockerRegistrySecret"},
		{"tag and version", chartSpec{Chart: "oci://" + host + "/charts/web:1.0.0", Version: "2.0.0"}, access{login: me}, "the address has tag 1.0.0"},
		{"no such version", chartSpec{Chart: "oci://" + host + "/charts/web", Version: "9.0.0"}, access{login: me}, "not found"},
		{"tags without end", chartSpec{Chart: "oci://" + host + "/charts/endless", Version: ">8"}, access{login: me}, "it has more than 100000"},
		{"an image", chartSpec{Chart: "oci://" + host + "/charts/web:image"}, access{login: me}, "is not a chart"},
		{"forged", chartSpec{Chart: "oci://" + host + "/charts/web:forged"}, access{login: me}, "its digest is not"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, err := newClient(nil, false)
			if err != nil {
				t.Fatal(err)
			}
			tt.with.client, tt.with.plainHTTP = client, true
			c, err := source{spec: tt.spec, charts: "/charts"}.fetch(t.Context(), tt.with)
			if err == nil && c.Metadata.Version != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want %s", c, err, tt.want)
			}
		})
	}
}

func TestIndexLeadsToRegistry(t *testing.T) {
	host := newRegistry(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "entries: {web: [{version: 1.0.0, urls: ['oci://%s/charts/web:1.0.0']}]}", host)
	}))
	t.Cleanup(server.Close)
	me := login{"me", "hunter2"}
	for _, tt := range []struct {
		name string
		with access
		ok   bool
	}{
		{"the repository's login", access{login: me}, false},
		{"a login for everywhere", access{login: me, loginForAllHosts: true}, true},
		{"the registry's own login", access{registries: map[string]login{host: me}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, err := newClient(nil, false)
			if err != nil {
				t.Fatal(err)
			}
			tt.with.client, tt.with.plainHTTP, tt.with.memorySlot = client, true, make(chan struct{}, 1)
			_, err = source{spec: chartSpec{Repo: server.URL, Chart: "web"}, charts: "/charts"}.fetch(t.Context(), tt.with)
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRedirectWithoutTLS(t *testing.T) {
	told := false
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _, told = r.BasicAuth() }))
	t.Cleanup(plain.Close)
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound)) // the same host
	t.Cleanup(server.Close)
	client, err := newClient(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (access{client: client, login: login{"me", "hunter2"}}).download(t.Context(), at, at, limit); err != nil || told {
		t.Errorf("error %v, the login was told without TLS: %v", err, told)
	}
}

func TestDockerLogins(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:hunter2:x"))
	got, err := dockerLogins([]byte(`{"auths": {"https://index.docker.io/v1/": {"auth": "` + auth + `"}, "r:5000": {"username": "u", "password": "p"}}}`))
	if err != nil || got["index.docker.io"] != (login{"me", "hunter2:x"}) || got["r:5000"] != (login{"u", "p"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if l := (access{registries: got}).registryLogin("registry-1.docker.io"); l.user != "me" {
		t.Errorf("docker.io's login is %v", l)
	}
	for _, bad := range []string{`hunter2`, `{"auths": {"r": {"auth": "hunter2"}}}`} {
		if _, err := dockerLogins([]byte(bad)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
