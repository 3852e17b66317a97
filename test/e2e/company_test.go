package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// company has a root authority of its own, which signs the authorities of its clusters.
type company struct {
	*testing.T
	root *x509.Certificate
	key  crypto.Signer
}

func newCompany(t *testing.T) *company {
	t.Helper()
	c := &company{T: t}
	var err error
	if c.key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c.root = c.sign("Root", c.key)
	return c
}

// sign makes the certificate of an authority. The root signs it, and the first one, which is the root's, signs itself.
func (c *company) sign(name string, key crypto.Signer) *x509.Certificate {
	c.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{Organization: []string{"Company"}, CommonName: "Company " + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(5, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	parent := c.root
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), c.key)
	if err != nil {
		c.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		c.Fatal(err)
	}
	return cert
}

// write writes intermediate authorities for a cluster to a directory, each followed by the root. word ends their names.
func (c *company) write(dir, word string) {
	c.Helper()
	for _, name := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		var key crypto.Signer
		var err error
		if name == "ca" {
			key, err = rsa.GenerateKey(rand.Reader, 2048)
		} else {
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		}
		if err != nil {
			c.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			c.Fatal(err)
		}
		chain := append(encoded("CERTIFICATE", c.sign(name+" "+word, key).Raw), encoded("CERTIFICATE", c.root.Raw)...)
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			c.Fatal(err)
		}
		for file, data := range map[string][]byte{name + ".crt": chain, name + ".key": encoded("PRIVATE KEY", der)} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				c.Fatal(err)
			}
		}
	}
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// signed returns an error unless authorities whose names end with a word have signed all certificates of a host.
func (c *company) signed(h *hosts.Host, word string) error {
	out, err := h.TryCoracle("certificate", "check", "-o", "json")
	if err != nil {
		return err
	}
	var all []struct{ Name, Issuer string }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return err
	}
	for _, one := range all {
		if !strings.HasSuffix(one.Name, "ca") && (!strings.HasPrefix(one.Issuer, "Company ") || !strings.HasSuffix(one.Issuer, " "+word)) {
			return fmt.Errorf("%s: %s has signed %s", h.Name, one.Issuer, one.Name)
		}
	}
	if len(all) < 3 {
		return fmt.Errorf("%s has %d certificates", h.Name, len(all))
	}
	return nil
}

// testCompany: a cluster began with intermediate authorities of a company, and gets others of the same root while clients work. Metrics, logs and exec work before
// and after, and a machine joins with a token that names the former authority.
func testCompany(t *testing.T, c *hosts.Cluster, company *company) {
	server := c.Servers[0]
	works := func() error {
		for _, h := range c.Servers {
			if err := topNodes(h); err != nil {
				return err
			}
			if out, err := h.TryCoracle("kubectl", "exec", "deployment/busy", "--", "echo", "here"); err != nil || out != "here\n" {
				return fmt.Errorf("%s: exec: %q, %w", h.Name, out, err)
			}
			if _, err := h.TryCoracle("kubectl", "logs", "deployment/busy"); err != nil {
				return err
			}
		}
		return nil
	}
	for _, h := range c.Hosts() {
		hosts.Eventually(t, time.Minute, func() error { return company.signed(h, "one") })
	}
	hosts.Eventually(t, time.Minute, works)
	late := hosts.New(t, c.Wire, "late", hosts.Options{})
	writeHost(t, late, "/root/token", server.Coracle("token", "create"))

	company.write(server.Path("/root/new"), "two")
	load := startSecretsLoad(t, c, c.Servers...)
	began := time.Now()
	t.Log(server.Coracle("certificate", "rotate-ca", "--path", "/root/new"))
	for _, h := range c.Servers {
		hosts.Eventually(t, time.Minute, func() error { return company.signed(h, "two") })
	}
	t.Logf("the servers' certificates are signed by others after %.1f s", time.Since(began).Seconds())
	hosts.Eventually(t, time.Minute, works)
	load.end(t)

	late.StartAgent("--server=https://"+server.IP.String()+":6443", "--token-file=/root/token")
	late.Coracle("wait", "--timeout", "1m")
	hosts.Eventually(t, time.Minute, func() error { return company.signed(late, "two") }) // its kubelet asks for one of them
}
