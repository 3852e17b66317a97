package e2e

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"

	"github.com/coracle-dev/coracle/test/hosts"
)

// kmsPlugin is a plugin of KMS v2 with a key of its own in memory.
type kmsPlugin struct {
	aead      cipher.AEAD
	encrypted atomic.Int64
	server    *service.GRPCService
}

const (
	kmsSocket = "/srv/kms/kms.sock"
	kmsKey    = "key-1" // its name, by which the API server notices a change
)

func newKMSPlugin(t *testing.T) *kmsPlugin {
	block, err := aes.NewCipher([]byte(rand.Text() + rand.Text())[:32])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &kmsPlugin{aead: aead}
}

// start serves on a host's socket, which the control plane's user can open, until stop.
func (p *kmsPlugin) start(t *testing.T, h *hosts.Host) {
	t.Helper()
	socket := h.Path(kmsSocket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	p.server = service.NewGRPCService(socket, 3*time.Second, p)
	go func() {
		if err := p.server.ListenAndServe(); err != nil {
			t.Errorf("the KMS plugin: %v", err)
		}
	}()
	hosts.Eventually(t, 10*time.Second, func() error { return os.Chmod(socket, 0o666) })
}

func (p *kmsPlugin) stop() { p.server.Close() }

// Status returns that all is well.
func (p *kmsPlugin) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: kmsKey}, nil
}

// Encrypt seals data with the plugin's key.
func (p *kmsPlugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	p.encrypted.Add(1)
	nonce := make([]byte, p.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return &service.EncryptResponse{Ciphertext: p.aead.Seal(nonce, nonce, data, nil), KeyID: kmsKey}, nil
}

// Decrypt opens what Encrypt has sealed.
func (p *kmsPlugin) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	if r.KeyID != kmsKey || len(r.Ciphertext) < p.aead.NonceSize() {
		return nil, errors.New("unknown key or damaged ciphertext")
	}
	return p.aead.Open(nil, r.Ciphertext[:p.aead.NonceSize()], r.Ciphertext[p.aead.NonceSize():], nil)
}

// testKMS checks that Secrets are encrypted by a plugin, and that a server which starts before its plugin says so and waits for it.
func testKMS(t *testing.T, h *hosts.Host, s *hosts.Server, p *kmsPlugin, args []string) {
	h.Kubectl("create", "secret", "generic", "hidden", "--from-literal=word=plaintext-swordfish")
	if out, err := h.Try("grep", "-rlaF", "plaintext-swordfish", "/var/lib/coracle/server/etcd"); err == nil {
		t.Errorf("a secret is readable in %s", out)
	}
	if _, err := h.Try("grep", "-rlaF", "k8s:enc:kms:v2:vault:", "/var/lib/coracle/server/etcd"); err != nil || p.encrypted.Load() == 0 {
		t.Errorf("etcd has nothing that the plugin has encrypted (it was asked %d times): %v", p.encrypted.Load(), err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	p.stop()
	h.Start(args...)
	hosts.Eventually(t, time.Minute, func() error {
		out, _ := h.TryCoracle("doctor", "--only", "api,components")
		return contains("coracle doctor", out, "kms")
	})
	p.start(t, h)
	hosts.Eventually(t, time.Minute, func() error {
		out, err := h.TryCoracle("kubectl", "get", "secret", "hidden", "-o", "jsonpath={.data.word}")
		if err == nil && out != "cGxhaW50ZXh0LXN3b3JkZmlzaA==" {
			err = errors.New("the Secret is " + out)
		}
		return err
	})
}
