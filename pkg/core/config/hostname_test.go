package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"math/big"
	"testing"
	"time"
)

// TestLocalhost: a node keeps its name while its host has none of its own yet, and follows any other name.
func TestLocalhost(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := func(user string) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotAfter: time.Unix(1, 0)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	joined := cert("system:coracle:node:edge-7")
	for _, test := range []struct {
		host string
		cert []byte
		args []string
		want string
	}{
		{"localhost", joined, nil, "edge-7"},
		{"localhost.localdomain", joined, nil, "edge-7"},
		{"LOCALHOST", joined, nil, "edge-7"},
		{"edge-8", joined, nil, "edge-8"},
		{"localhost-8", joined, nil, "localhost-8"},
		{"localhost", joined, []string{"--node-name=other"}, "other"},
		{"localhost", nil, nil, "localhost"},
		{"localhost", []byte("damaged"), nil, "localhost"},
		{"localhost", cert("system:coracle:node:../x"), nil, "localhost"},
		{"localhost", cert("somebody"), nil, "localhost"},
	} {
		for _, role := range []Role{Server, Agent} {
			h := edge()
			h.hostname = func() (string, error) { return test.host, nil }
			read := h.readFile
			h.readFile = func(name string) ([]byte, error) {
				if name == "/var/lib/coracle/node/pki/node.crt" {
					if test.cert == nil {
						return nil, fs.ErrNotExist
					}
					return test.cert, nil
				}
				return read(name)
			}
			args := test.args
			if role == Agent {
				args = append(args, "--server=https://192.0.2.1:6443")
			}
			cfg, _, err := resolve(role, args, nil, h, nil)
			if err != nil || cfg.Node.Name != test.want {
				t.Errorf("%s on a host called %s: node %q, %v; want %s", role, test.host, cfg.Node.Name, err, test.want)
			}
		}
	}
}

// TestTokenFileIsGone: it is missed by a machine that has not joined only.
func TestTokenFileIsGone(t *testing.T) {
	for _, joined := range []bool{true, false} {
		h := edge()
		read := h.readFile
		h.readFile = func(name string) ([]byte, error) {
			if joined && name == "/var/lib/coracle/node/pki/node.crt" {
				return nil, nil
			}
			return read(name)
		}
		for _, flag := range []string{"--token-file", "--agent-token-file"} {
			role, args := Server, []string{flag + "=/etc/coracle/gone"}
			if flag == "--token-file" {
				role, args = Agent, append(args, "--server=https://192.0.2.1:6443")
			}
			if _, _, err := resolve(role, args, nil, h, nil); (err == nil) != joined {
				t.Errorf("%s on a machine that joined (%t): %v", flag, joined, err)
			}
			if _, _, err := resolve(role, append(args, flag+"="+t.TempDir()), nil, h, nil); err == nil {
				t.Errorf("%s is a directory, and that is no error", flag)
			}
		}
	}
}
