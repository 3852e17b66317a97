package formerusers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// signer is an authority and a key for tokens.
type signer struct {
	cert   *x509.Certificate
	public []byte // PKIX
}

func newSigner(t *testing.T, name string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signer{cert, cert.RawSubjectPublicKeyInfo}
}

func (s signer) withCertificate() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{RawIssuer: s.cert.RawSubject}}}
	r.Header.Set("User-Agent", "kubectl/v1 (linux)")
	return r
}

func (s signer) withToken() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	sum := sha256.Sum256(s.public)
	head := fmt.Sprintf(`{"alg":"ES256","kid":%q}`, base64.RawURLEncoding.EncodeToString(sum[:]))
	r.Header.Set("Authorization", "Bearer "+base64.RawURLEncoding.EncodeToString([]byte(head))+".e30.x")
	return r
}

// TestUsers: who comes with what is former is remembered until they come with what is new, and nobody is while nothing is changed.
func TestUsers(t *testing.T) {
	d := paths.Dirs{Data: t.TempDir()}
	if err := os.MkdirAll(d.PKI(), 0o700); err != nil {
		t.Fatal(err)
	}
	u, one, two := &Users{}, newSigner(t, "one"), newSigner(t, "two")
	note := func(r *http.Request, who user.Info) {
		noted := u.Note(r)
		r.Header.Del("Authorization") // as the API server does
		if noted != nil {
			noted(who)
		}
	}
	have := func(all ...signer) {
		t.Helper()
		var certs, keys []byte
		for _, s := range all {
			certs = append(certs, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})...)
			keys = append(keys, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: s.public})...)
		}
		for name, data := range map[string][]byte{"ca.crt": certs, "sa.pub": keys} {
			if err := os.WriteFile(filepath.Join(d.PKI(), name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		u.Load(d)
	}
	jane := &user.DefaultInfo{Name: "jane"}
	pod := &user.DefaultInfo{Name: "system:serviceaccount:a:b", Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"c"}}}
	want := func(names ...string) {
		t.Helper()
		if got, _ := u.List(); !slices.Equal(got, names) {
			t.Errorf("%q instead of %q", got, names)
		}
	}
	have(one)
	note(one.withCertificate(), jane)
	note(one.withToken(), pod)
	want()
	have(two, one)
	note(one.withCertificate(), jane)
	note(one.withToken(), pod)
	note(two.withCertificate(), &user.DefaultInfo{Name: "joe"})
	note(one.withToken(), jane) // of an identity provider, whose keys are none of the cluster's
	note(httptest.NewRequest(http.MethodGet, "/", nil), jane)
	want("jane: a certificate, from kubectl/v1 at 192.0.2.1", "system:serviceaccount:a:b (c): a token, from  at 192.0.2.1")
	note(two.withCertificate(), jane)
	note(two.withToken(), pod)
	want()
}

// TestTokens: a token is found however the API server accepts it, and stays in the request.
func TestTokens(t *testing.T) {
	r := newSigner(t, "one").withToken()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	protocols := "x, base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	id := keyID(r)
	for _, header := range []http.Header{
		{"Authorization": {" bEARER " + token + " x"}},
		{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {protocols}},
	} {
		r := &http.Request{Header: header.Clone()}
		if got := keyID(r); id == "" || got != id || !maps.EqualFunc(r.Header, header, slices.Equal) {
			t.Errorf("%v: the key is %q instead of %q, and the header is then %v", header, got, id, r.Header)
		}
	}
}

// TestManyUsers: who comes with many programs fills neither the memory nor the list, hides nobody, and writes nothing on terminals.
func TestManyUsers(t *testing.T) {
	d := paths.Dirs{Data: t.TempDir()}
	if err := os.MkdirAll(d.PKI(), 0o700); err != nil {
		t.Fatal(err)
	}
	u, one, two := &Users{}, newSigner(t, "one"), newSigner(t, "two")
	certs := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: two.cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.cert.Raw}))
	for name, data := range map[string][]byte{"ca.crt": certs, "sa.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: two.public})} {
		if err := os.WriteFile(filepath.Join(d.PKI(), name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.Load(d)
	come := func(name, program string) {
		r := one.withCertificate()
		r.Header.Set("User-Agent", program)
		u.Note(r)(&user.DefaultInfo{Name: name})
	}
	for i := range 5000 {
		come("mallory", fmt.Sprintf("\x1b[2J\u009b%d%s", i, strings.Repeat("x", 10_000)))
	}
	come("jane", "kubectl/v1 (linux)")
	got, since := u.List()
	if text := strings.Join(got, "\n"); len(got) != mostOfName+1 || !strings.Contains(text, "jane: a certificate, from kubectl/v1 at ") || len(text) > 2000 ||
		strings.ContainsAny(text, "\x1b\u009b") || since.IsZero() {
		t.Errorf("%d: %q, since %s", len(got), got, since)
	}
	u.Load(d)
	if again, still := u.List(); len(again) != len(got) || !still.Equal(since) {
		t.Errorf("the same authorities were read again, and %d are remembered since %s", len(again), still)
	}
	for i := range 100 {
		come(fmt.Sprint("user", i), "x")
	}
	if got, _ := u.List(); len(got) != mostListed+1 || !strings.HasPrefix(got[mostListed], "and ") {
		t.Errorf("%d: %q", len(got), got)
	}
}
