package registries

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, text string) (*File, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

// asked are the endpoints of an image as URLs; the registry's own one has a star.
func asked(f *File, host, repository string, noDefault bool) string {
	endpoints, ours := f.Endpoints(host, repository, noDefault)
	if !ours {
		return "not ours"
	}
	var out []string
	for _, e := range endpoints {
		text := e.Scheme + "://" + e.Host + e.Path + "/" + e.Repository
		if e.Own {
			text += "*"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestEndpoints(t *testing.T) {
	const docker = "https://registry-1.docker.io/v2/library/app*"
	tests := []struct {
		name, text, host string
		noDefault        bool
		want             string
	}{
		{name: "empty file", host: "docker.io", want: "not ours"},
		{name: "other registry", text: `mirrors: {quay.io: {endpoint: ["https://m"]}}`, host: "docker.io", want: "not ours"},
		{name: "mirror, then itself", text: `mirrors: {docker.io: {endpoint: ["https://m:5000"]}}`, host: "docker.io", want: "https://m:5000/v2/library/app " + docker},
		{name: "order", text: `mirrors: {docker.io: {endpoint: ["http://b", "https://a/v2/"]}}`, host: "docker.io",
			want: "http://b/v2/library/app https://a/v2/library/app " + docker},
		{name: "twice", text: `mirrors: {docker.io: {endpoint: ["http://b", "http://b/v2"]}}`, host: "docker.io", want: "http://b/v2/library/app " + docker},
		{name: "without itself", text: `mirrors: {docker.io: {endpoint: ["https://m"]}}`, host: "docker.io", noDefault: true, want: "https://m/v2/library/app"},
		{name: "path of its own", text: `mirrors: {docker.io: {endpoint: ["https://m/api/docker/v2"]}}`, host: "docker.io", noDefault: true,
			want: "https://m/api/docker/v2/library/app"},
		{name: "no scheme", text: `mirrors: {r.test: {endpoint: ["m:5000", "localhost:5000", "127.0.0.1:443", "[::1]:5000"]}}`, host: "r.test", noDefault: true,
			want: "https://m:5000/v2/library/app http://localhost:5000/v2/library/app https://127.0.0.1:443/v2/library/app http://[::1]:5000/v2/library/app"},
		{name: "rewritten for mirrors only", text: `mirrors: {docker.io: {endpoint: ["https://m"], rewrite: {"^library/(.*)": "hub/$1"}}}`, host: "docker.io",
			want: "https://m/v2/hub/app " + docker},
		{name: "itself listed last", text: `mirrors: {docker.io: {endpoint: ["https://m", "https://docker.io"], rewrite: {"^library/(.*)": "hub/$1"}}}`, host: "docker.io",
			want: "https://m/v2/hub/app https://registry-1.docker.io/v2/hub/app*"},
		{name: "itself listed first", text: `mirrors: {r.test: {endpoint: ["https://r.test", "https://m"]}}`, host: "r.test",
			want: "https://r.test/v2/library/app* https://m/v2/library/app https://r.test/v2/library/app*"},
		{name: "first rule of the file that changes something", text: `mirrors: {r.test: {endpoint: ["https://m"], rewrite: {"^x": "y", "^lib": "first", "^library": "second"}}}`,
			host: "r.test", noDefault: true, want: "https://m/v2/firstrary/app"},
		{name: "star", text: `mirrors: {"*": {endpoint: ["https://m"]}}`, host: "r.test:5000", want: "https://m/v2/library/app https://r.test:5000/v2/library/app*"},
		{name: "star beside its own", text: `mirrors: {"*": {endpoint: ["https://m"]}, r.test: {endpoint: ["https://o"]}}`, host: "r.test", noDefault: true,
			want: "https://o/v2/library/app"},
		{name: "star with credentials for the registry", text: `{mirrors: {"*": {endpoint: ["https://m"]}}, configs: {r.test: {auth: {username: a, password: b}}}}`,
			host: "r.test", want: "https://m/v2/library/app https://r.test/v2/library/app*"},
		{name: "credentials alone", text: `configs: {registry-1.docker.io: {auth: {username: a, password: b}}}`, host: "docker.io", noDefault: true, want: docker},
		{name: "credentials for all", text: `configs: {"*": {tls: {insecure_skip_verify: true}}}`, host: "127.0.0.1:5000", want: "http://127.0.0.1:5000/v2/library/app*"},
		{name: "docker's other name", text: `mirrors: {registry-1.docker.io: {endpoint: ["https://m"]}}`, host: "docker.io", noDefault: true, want: "https://m/v2/library/app"},
		{name: "docker's names together", text: `mirrors: {registry-1.docker.io: {endpoint: ["https://n"]}, docker.io: {endpoint: ["https://m"]}, index.docker.io: {}}`, host: "docker.io",
			noDefault: true, want: "https://m/v2/library/app"},
		{name: "the same by an alias", text: `mirrors: {q.test: &m {endpoint: [&a m]}, r.test: *m, s.test: {endpoint: [*a]}}`, host: "r.test", noDefault: true, want: "https://m/v2/library/app"},
		{name: "an endpoint by an alias", text: `mirrors: {q.test: {endpoint: [&a m]}, r.test: {endpoint: [*a]}}`, host: "r.test", noDefault: true, want: "https://m/v2/library/app"},
		{name: "merged", text: `mirrors: {q.test: &q {endpoint: [m], rewrite: {"^": q/}}, p.test: &p {endpoint: [p]}, r.test: {<<: [*q, *p], rewrite: {"^": r/}}}`, host: "r.test",
			noDefault: true, want: "https://m/v2/r/library/app"},
		{name: "another port than the default one", text: `mirrors: {r.test: {endpoint: ["https://r.test:443"], rewrite: {"^library/(.*)": "hub/$1"}}}`, host: "r.test",
			want: "https://r.test:443/v2/hub/app https://r.test/v2/library/app*"},
		{name: "nobody to ask", text: `mirrors: {r.test: }`, host: "r.test", noDefault: true, want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := asked(f, tt.host, "library/app", tt.noDefault); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAuth(t *testing.T) {
	f, err := parse(t, `
configs:
  a.test: {auth: {username: me, password: "a:b"}}
  b.test: {auth: {auth: bWU6YTpi}}   # me:a:b
  c.test: {auth: {identity_token: t}}
  docker.io: {auth: {username: hub, password: p}}
  "*": {auth: {username: all, password: p}}
auths:
  https://d.test/v2: {username: old, password: p}
  a.test: {username: old, password: p}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings) != 3 || !strings.Contains(f.Warnings[0], `line 7: configs."*".auth is told to every registry`) || !strings.Contains(f.Warnings[1], "line 9") {
		t.Errorf("warnings: %q", f.Warnings)
	}
	for host, want := range map[string]Auth{
		"a.test": {User: "me", Password: "a:b"}, "b.test": {User: "me", Password: "a:b"}, "c.test": {IdentityToken: "t"},
		"d.test": {User: "old", Password: "p"}, "registry-1.docker.io": {User: "hub", Password: "p"}, "e.test:5000": {User: "all", Password: "p"},
	} {
		if got := f.Auth(host); got != want {
			t.Errorf("%s: %+v", host, got)
		}
	}
}

// TestWrittenForK3s has what k3s takes, too, and warns of.
func TestWrittenForK3s(t *testing.T) {
	f, err := parse(t, `
configs:
  https://index.docker.io/v1/: {auth: {username: address, password: p}}
  https://a.test:5000/v2: {auth: {username: a, password: p}}
  docker.io: {auth: {username: first, password: p}}
  registry-1.docker.io: {auth: {username: hub, password: p}}
  index.docker.io: {auth: {username: third, password: p}}
  b.test: {auth: {auth: bmFtZTo=, identity_token: t, token: s3cret}}   # name:
  c.test: {auth: {username: , password: , auth: }, tls: {ca_file: , cert_file: , key_file: , insecure_skip_verify: }}
`)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]Auth{
		"docker.io": {User: "hub", Password: "p"}, "a.test:5000": {User: "a", Password: "p"}, "b.test": {IdentityToken: "t"}, "c.test": {},
	} {
		if got := f.Auth(host); got != want {
			t.Errorf("%s: %+v", host, got)
		}
	}
	all := strings.Join(f.Warnings, "\n")
	for _, want := range []string{
		`line 3: configs."https://index.docker.io/v1/" does nothing: configs."docker.io" is there`, `line 4: configs."https://a.test:5000/v2" is taken as configs."a.test:5000"`,
		"line 6: configs.registry-1.docker.io goes before what docker.io has", "line 7: configs.index.docker.io does nothing", "line 8: configs.b.test.auth.token does nothing",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning says %s:\n%s", want, all)
		}
	}
	if len(f.Warnings) != 5 || strings.Contains(all, "s3cret") {
		t.Errorf("warnings:\n%s", all)
	}
}

func TestMistakes(t *testing.T) {
	pem := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(pem, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, text, want string }{
		{"no YAML", "mirrors: {a: [s3cret", "line 1: this is no YAML"},
		{"no mapping", "- a", "line 1: this has to be a list of keys"},
		{"unknown key", "mirrors:\n  a.test:\n    endpoints: []", "line 3: mirrors.a.test.endpoints: there is no such setting (there are: endpoint, rewrite)"},
		{"unknown section", "mirror: {}", "line 1: mirror: there is no such setting (there are: configs, mirrors)"},
		{"twice", "configs:\n  a.test: {}\n  a.test: {}", "line 3: configs.a.test: this is there twice"},
		{"in itself", "mirrors:\n  a.test: &a {<<: *a}", "line 2: mirrors.a.test: this has to be a list of keys"},
		{"an unknown key by <<", "mirrors:\n  a.test: {endpoint: &a [b]}\n  b.test: {<<: {endpoints: *a}}", "line 3: mirrors.b.test.endpoints: there is no such setting"},
		{"no address", "configs: {\"ftp://a.test\": {}}", "not by ftp"},
		{"a URL as a name", "mirrors: {\"https://a.test\": {}}", "a registry is named as in its images"},
		{"endpoint is no list", "mirrors: {a.test: {endpoint: https://b}}", "mirrors.a.test.endpoint: this has to be a list"},
		{"bad scheme", "mirrors: {a.test: {endpoint: [\"ftp://b\"]}}", "not by ftp"},
		{"bad address", "mirrors: {a.test: {endpoint: [\"https://\"]}}", "this is no address of a registry"},
		{"a password in an address", "mirrors: {a.test: {endpoint: [\"https://me:s3cret@b\"]}}", "belong into an address, but into configs.HOST.auth"},
		{"bad pattern", "mirrors:\n  a.test:\n    rewrite:\n      '(': x", "line 4: mirrors.a.test.rewrite.(: this is no regular expression"},
		{"bad base64", "configs: {a.test: {auth: {auth: s3cret!}}}", `configs.a.test.auth.auth: this has to be "user:password" in base64`},
		{"no user in it", "configs: {a.test: {auth: {auth: czNjcmV0}}}", `configs.a.test.auth.auth: this has to be "user:password" in base64`},
		{"no password", "configs: {a.test: {auth: {username: me}}}", "configs.a.test.auth: a username goes with a password"},
		{"certificate without key", "configs: {a.test: {tls: {cert_file: " + pem + "}}}", "configs.a.test.tls: cert_file and key_file go together"},
		{"no pair", "configs: {a.test: {tls: {cert_file: " + pem + ", key_file: " + pem + "}}}", "configs.a.test.tls: cert_file and key_file are no pair"},
		{"no certificate", "configs:\n  a.test:\n    tls:\n      ca_file: " + pem, "line 4: configs.a.test.tls.ca_file: the file holds no certificate"},
		{"no file", "configs:\n  a.test:\n    tls: {ca_file: /nowhere}", "line 3: configs.a.test.tls.ca_file: open /nowhere: no such file"},
		{"relative", "configs: {a.test: {tls: {ca_file: ca.pem}}}", "the path ca.pem has to begin with /"},
		{"neither true nor false", "configs: {a.test: {tls: {insecure_skip_verify: perhaps}}}", "insecure_skip_verify: this has to be true or false"},
		{"all at once", "mirror: {}\nconfig: {}", "line 2: config: there is no such setting"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "registries.yaml") {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

// TestLive goes through what happens to a file and to one that it names while somebody pulls.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	file, ca := filepath.Join(dir, "registries.yaml"), filepath.Join(dir, "ca.pem")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := NewLive(file)
	now := func(says, right bool) *File {
		t.Helper()
		f, err := l.Now()
		if f.HasEntries() != says || (err == nil) != right {
			t.Fatalf("the file says something: %t, and is wrong: %v", f.HasEntries(), err)
		}
		return f
	}
	now(false, true)
	write(file, "mirrors: {a.test: {endpoint: [b]}}")
	first := now(true, true)
	if now(true, true) != first {
		t.Error("the same file is read again")
	}
	write(file, "mirrors: {a.test: {endpoint: [c]}}") // as long as before, and perhaps at the same time
	second := now(true, true)
	if got := asked(second, "a.test", "x", true); got != "https://c/v2/x" {
		t.Errorf("after a change: %s", got)
	}
	write(file, fmt.Sprintf("configs: {a.test: {tls: {ca_file: %s}}}", ca))
	if now(true, false) != second {
		t.Error("a wrong file is in force")
	}
	write(ca, authority(t))
	third := now(true, true)
	if got := Named(file); !slices.Equal(got, []string{ca}) {
		t.Errorf("it names %s", got)
	}
	elsewhere := filepath.Join(dir, "copies", ca)
	if err := os.MkdirAll(filepath.Dir(elsewhere), 0o755); err != nil {
		t.Fatal(err)
	}
	copied := NewCopied(file, func(named string) string { return filepath.Join(dir, "copies", named) })
	if _, err := copied.Now(); err == nil {
		t.Error("the original is read instead of the copy")
	}
	write(elsewhere, authority(t))
	if f, err := copied.Now(); !f.HasEntries() {
		t.Error("the copy is not read:", err)
	}
	write(ca, authority(t))
	if now(true, true) == third {
		t.Error("another authority is not noticed")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	now(false, true)

	write(file, "nonsense: x")
	if f, err := NewLive(file).Now(); f != nil || err == nil {
		t.Error("a file that was never right is something")
	}
}

func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
