package e2e

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testExpiredAgent: an agent that was off for thirteen months needs no token. A file of --token-file that is gone is no error.
func testExpiredAgent(t *testing.T, server, agent *hosts.Host) {
	ca, err := tls.LoadX509KeyPair(server.Data("server/pki/ca.crt"), server.Data("server/pki/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node.crt", "kubelet-client-current.pem"} {
		expire(t, ca, agent.Data("node/pki", name))
	}
	began := time.Now()
	s := agent.StartAgent("--token-file=/etc/coracle/gone")
	agent.Coracle("wait", "--timeout", "3m")
	t.Logf("back after %.1f s", time.Since(began).Seconds())
	if log := s.Log(); !strings.Contains(log, "renewed this node's certificate") || strings.Contains(log, "joined the cluster") {
		t.Errorf("it did not renew its certificate:\n%s", log)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// expire replaces a certificate in a file by one of the same key whose validity has ended a month ago. What else is in the file stays.
func expire(t *testing.T, ca tls.Certificate, file string) {
	t.Helper()
	if target, err := os.Readlink(file); err == nil { // with the path that it has on the host
		file = filepath.Join(filepath.Dir(file), filepath.Base(target))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			cert.NotBefore, cert.NotAfter = time.Now().AddDate(0, -13, 0), time.Now().AddDate(0, -1, 0)
			if block.Bytes, err = x509.CreateCertificate(rand.Reader, cert, ca.Leaf, cert.PublicKey, ca.PrivateKey); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, pem.EncodeToMemory(block)...)
	}
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
}
