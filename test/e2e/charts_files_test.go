package e2e

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/chartfile"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
)

// chartCRD defines the kind Thing; a chart with it also has a Thing.
const chartCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.charts.test}
spec:
  group: charts.test
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// chartFiles returns the files of the test's chart, with the given ones added or replaced.
func chartFiles(t *testing.T, version string, more ...string) map[string]string {
	files := map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: web\nversion: " + version + "\nappVersion: \"7\"\n",
		"values.yaml":        "image: coracle.test/busybox:1\ntext: of the chart\nreplicas: 1\nhook: \"\"\n",
		"templates/all.yaml": manifest(t, "chart.yaml"),
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

// helmChart is a HelmChart in namespace default; each argument is a line of its spec.
func helmChart(name string, spec ...string) string {
	return "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: " + name + ", namespace: default}\nspec:\n  " +
		strings.Join(spec, "\n  ") + "\n"
}

// inline is the field with the packed chart.
func inline(t *testing.T, files map[string]string) string {
	return "chartContent: " + base64.StdEncoding.EncodeToString(chartfile.Pack(t, "web", files))
}

// indented is PEM text as the value of a field in a spec.
func indented(pem []byte) string {
	return "|\n    " + strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n    ")
}

// serveCharts runs a chart repository on the host, with TLS and a login, and two versions of the chart. It returns its
// URL.
func serveCharts(t *testing.T, h *hosts.Host, authority *registries.Authority) string {
	t.Helper()
	files, index := map[string][]byte{}, "apiVersion: v1\nentries:\n  web:\n"
	for _, version := range []string{"1.0.0", "1.1.0"} {
		archive := chartfile.Pack(t, "web", chartFiles(t, version))
		files["/repo/web-"+version+".tgz"] = archive
		index += fmt.Sprintf("  - {name: web, apiVersion: v2, version: %s, urls: [web-%s.tgz], digest: %x}\n", version, version, sha256.Sum256(archive))
	}
	files["/repo/index.yaml"] = []byte(index)
	certificate, key := authority.Sign(t, h.IP)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(h.IP.String(), "8879")
	listener := tls.NewListener(h.Listen("tcp", address), &tls.Config{Certificates: []tls.Certificate{pair}})
	web := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path]
		switch user, password, _ := r.BasicAuth(); {
		case user != "me" || password != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(data)
		}
	})}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	return "https://" + address + "/repo"
}

// pushChart pushes a packed chart to a registry as repository charts/web, with the registry's own API.
func pushChart(t *testing.T, h *hosts.Host, r *registries.Registry, authority *registries.Authority, tag string, archive []byte) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	client := &http.Client{Transport: &http.Transport{DialContext: h.Dial, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	send := func(method, url, kind string, data []byte) string {
		request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("me", "secret")
		request.Header.Set("Content-Type", kind)
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("pushing a chart: %v", err)
		}
		defer response.Body.Close()
		if said, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
			t.Fatalf("pushing a chart: %s %s: %s: %s", method, url, response.Status, said)
		}
		return response.Header.Get("Location")
	}
	blob := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		at := send(http.MethodPost, r.URL+"/v2/charts/web/blobs/uploads/", "", nil)
		if strings.HasPrefix(at, "/") {
			at = r.URL + at
		}
		separator := "?"
		if strings.Contains(at, "?") {
			separator = "&"
		}
		send(http.MethodPut, at+separator+"digest="+digest, "application/octet-stream", data)
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kind,
		"config": blob("application/vnd.cncf.helm.config.v1+json", []byte(`{"name":"web"}`)),
		"layers": []any{blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive)},
	})
	if err != nil {
		t.Fatal(err)
	}
	send(http.MethodPut, r.URL+"/v2/charts/web/manifests/"+tag, kind, manifest)
}
