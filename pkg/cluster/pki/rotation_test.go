package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// stages returns the stages of a change.
func stages(t *testing.T, cfg config.Config, given map[string][]byte) []Rotation {
	t.Helper()
	trusting, err := BeginRotation(cfg.Dirs, given, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signing := trusting
	signing.Stage = Signing
	return []Rotation{trusting, signing, signing.Finish()}
}

// verifies reports whether a leaf of cfg is valid for somebody who knows the authorities in a bundle only.
func verifies(t *testing.T, cfg config.Config, name string, bundle []byte) bool {
	t.Helper()
	l := leafNamed(name)
	both, err := tls.LoadX509KeyPair(l.certFile(cfg.Dirs), l.keyFile(cfg.Dirs))
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range both.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		between.AddCert(cert)
	}
	_, err = both.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: l.Usage})
	return err == nil
}

// TestManyRotations: who knows the authority of before the last mostFormer changes follows, and the handshake does not grow any more.
func TestManyRotations(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	var known [][]byte
	for range mostFormer + 2 {
		ca, err := os.ReadFile(clusterCA.certFile(cfg.Dirs))
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, ca)
		for _, r := range stages(t, cfg, nil) {
			if err := Adopt(cfg, r.Files()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !verifies(t, cfg, "apiserver", known[2]) || verifies(t, cfg, "apiserver", known[1]) {
		t.Error("not exactly the last changes are followed")
	}
	data, err := os.ReadFile(leafNamed("apiserver").certFile(cfg.Dirs))
	if n := len(ParseCerts(data)); err != nil || n != 1+mostFormer+mostFormer+1 {
		t.Errorf("there are %d certificates in the handshake, %v", n, err)
	}
}

// TestRotation changes all authorities twice. At each stage, whoever knows the first authorities only accepts all certificates, and a change that was
// interrupted after any file goes on.
func TestRotation(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	first := map[authority][]byte{}
	for _, a := range authorities {
		first[a], _ = os.ReadFile(a.certFile(cfg.Dirs))
	}
	pin, err := OwnPin(cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for _, r := range stages(t, cfg, nil) {
			if r.Matches(cfg.Dirs) {
				t.Fatalf("%d %s: it has the files already", round, r.Stage)
			}
			files := r.Files()
			for n := range len(files) { // as far as a crash lets it come
				some := slices.Sorted(maps.Keys(files))[:n]
				for _, name := range some {
					if strings.HasSuffix(name, ".key") == strings.Contains(name, "ca") { // any file but an authority's key alone may be the first; see Adopt
						continue
					}
					if err := atomicfile.Write(filepath.Join(cfg.Dirs.PKI(), name), files[name], 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 2 {
				if err := Adopt(cfg, files); err != nil {
					t.Fatalf("%d %s: %v", round, r.Stage, err)
				}
			}
			if !r.Matches(cfg.Dirs) {
				t.Errorf("%d %s: the files are others", round, r.Stage)
			}
			checkAll(t, cfg)
			for _, l := range allLeaves() {
				if !verifies(t, cfg, l.Name, first[l.CA]) {
					t.Errorf("%d %s: who knows the first authority does not accept %s", round, r.Stage, l.Name)
				}
			}
			now, err := OwnPin(cfg.Dirs)
			if err != nil || (now == pin) != (r.Stage == Trusting) && round == 0 {
				t.Errorf("%d %s: the pin is %s, %v", round, r.Stage, now, err)
			}
			seals, err := SealKeys(cfg.Dirs, SealSecrets)
			if want := map[RotationStage]int{Trusting: 2, Signing: 2, Finished: 1}[r.Stage]; err != nil || len(seals) != want || seals[0].Name != now {
				t.Errorf("%d %s: %d seals, %v", round, r.Stage, len(seals), err)
			}
		}
	}
	old := &pair{}
	if old.Cert, err = parseCert(first[clusterCA]); err != nil {
		t.Fatal(err)
	}
	if !SignedByFormer(cfg.Dirs, old.Cert) {
		t.Error("the first authority is forgotten")
	}
	if data, _ := os.ReadFile(clusterCA.certFile(cfg.Dirs)); len(ParseCerts(data)) != 1 {
		t.Error("a former authority is accepted still")
	}
}

// TestRotationCut: wherever Adopt is cut off, what the next start issues is accepted by who knows the former authorities only.
func TestRotationCut(t *testing.T) {
	for _, name := range append(crossFiles(), KeyFiles()...) {
		for step := range 2 {
			cfg := testConfig(t)
			ensureAll(t, cfg)
			former, err := ReadKeys(cfg.Dirs)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range stages(t, cfg, nil) {
				both, err := withPresentKeys(cfg.Dirs, r.Files())
				if err != nil {
					t.Fatal(err)
				}
				for n, files := range []map[string][]byte{both, r.Files()} {
					if n == step {
						files[name] = []byte{} // where the writing ends
					}
					if err := WriteKeys(cfg.Dirs, files); n == step && err == nil {
						t.Fatalf("%s %s: it was not cut off", r.Stage, name)
					} else if n == step {
						break
					}
				}
				ensureAll(t, cfg)
				for _, l := range allLeaves() {
					if !verifies(t, cfg, l.Name, former[l.CA.Name+".crt"]) {
						t.Errorf("%s: step %d cut off before %s: who knows the former authority does not accept %s", r.Stage, step+1, name, l.Name)
					}
				}
				if err := Adopt(cfg, r.Files()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestForeignAuthorities: files of another cluster, damaged ones, or those of before a change that is finished, are not taken over.
func TestForeignAuthorities(t *testing.T) {
	cfg, other := testConfig(t), testConfig(t)
	ensureAll(t, cfg)
	ensureAll(t, other)
	all := stages(t, cfg, nil)
	foreign := stages(t, other, nil)
	damaged := maps.Clone(all[1].Files())
	damaged["etcd/ca.key"] = all[0].Before["ca.key"]
	before := snapshot(t, cfg)
	for name, files := range map[string]map[string][]byte{"foreign": foreign[0].Files(), "a foreign change": foreign[2].Files(), "damaged": damaged, "empty": {}} {
		if err := Adopt(cfg, files); err == nil {
			t.Errorf("%s: they are taken over", name)
		}
	}
	if !maps.Equal(before, snapshot(t, cfg)) {
		t.Error("files changed")
	}
	for _, r := range all {
		if err := Adopt(cfg, r.Files()); err != nil {
			t.Fatal(err)
		}
	}
	if err := Adopt(cfg, all[0].Before); err == nil {
		t.Error("the former authorities are back")
	}
	if len(all[2].Before["ca.key"])+len(all[2].Before["sa.key"]) > 0 {
		t.Error("a finished change has former keys")
	}
}

// TestAuthorityAlone: an authority that may have none below it can be replaced by none that its clients would follow.
func TestAuthorityAlone(t *testing.T) {
	cfg := testConfig(t)
	key, _ := newKey()
	template := authorityTemplate(clusterCA, time.Now())
	template.MaxPathLen, template.MaxPathLenZero = 0, true
	cert, err := sign(template, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	keyData, _ := encodeKey(key)
	if err := os.MkdirAll(cfg.Dirs.PKI(), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{clusterCA.certFile(cfg.Dirs): encodeCert(cert), clusterCA.keyFile(cfg.Dirs): keyData} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ensureAll(t, cfg)
	if _, err := BeginRotation(cfg.Dirs, nil, time.Now()); err == nil || !strings.Contains(err.Error(), "ca.crt: who knows the former authority") {
		t.Error(err)
	}
}

// TestGivenAuthorities: an intermediate authority of a company's takes the place of the cluster's own; only what fits is accepted.
func TestGivenAuthorities(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	company := authority{Name: "company", CN: "Company Root"}
	rootKey, _ := newKey()
	root, err := sign(authorityTemplate(company, time.Now()), rootKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := newKey()
	cert, err := sign(authorityTemplate(authority{CN: "Company Cluster CA"}, time.Now()), key, &pair{root, rootKey})
	if err != nil {
		t.Fatal(err)
	}
	keyData, _ := encodeKey(key)
	rootKeyData, _ := encodeKey(rootKey)
	chain := append(encodeCert(cert), encodeCert(root)...)
	own, err := ReadKeys(cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := sign(&x509.Certificate{RawSubject: ParseCerts(own["ca.crt"])[0].RawSubject, SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]map[string][]byte{
		"no key":      {"ca.crt": chain},
		"its name":    {"ca.crt": encodeCert(twin), "ca.key": keyData},
		"another key": {"ca.crt": chain, "ca.key": rootKeyData},
		"present":     {"ca.crt": own["ca.crt"], "ca.key": own["ca.key"]},
		"a bad sa":    {"sa.key": []byte("x")},
		"unknown":     {"other.key": keyData},
	} {
		if _, err := BeginRotation(cfg.Dirs, wrong, time.Now()); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	chain, keyData = bytes.TrimSpace(chain), bytes.TrimSpace(keyData) // as some programs write files
	for _, r := range stages(t, cfg, map[string][]byte{"ca.crt": chain, "ca.key": keyData}) {
		both, err := withPresentKeys(cfg.Dirs, r.Files())
		if err != nil {
			t.Fatal(err)
		}
		present, _ := os.ReadFile(clusterCA.certFile(cfg.Dirs))
		keys, err := parseKeys(both["ca.key"])
		if err != nil || !samePublic(ParseCerts(present)[0], keyOf(ParseCerts(present)[0], keys)) || !samePublic(cert, keyOf(cert, keys)) {
			t.Errorf("%s: if it is interrupted, one of the keys is missing: %v", r.Stage, err)
		}
		if err := Adopt(cfg, r.Files()); err != nil {
			t.Fatal(err)
		}
		checkAll(t, cfg)
	}
	if !verifies(t, cfg, "apiserver", encodeCert(root)) || !verifies(t, cfg, "apiserver", own["ca.crt"]) {
		t.Error("who knows the company's root, or the former authority, does not accept the API's certificate")
	}
	if got, err := ReadKeys(cfg.Dirs); err != nil || string(got["sa.key"]) != string(own["sa.key"]) || string(got["etcd/ca.crt"]) != string(own["etcd/ca.crt"]) {
		t.Errorf("what was not given changed, %v", err)
	}
	if signer, err := readCerts(filepath.Join(cfg.Dirs.PKI(), SignerFile)); err != nil || len(signer) != 1 || !signer[0].Equal(cert) {
		t.Errorf("kube-controller-manager signs with %v, %v", signer, err)
	}
}
