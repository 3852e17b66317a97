package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func testConfig(t *testing.T) config.Config {
	root := t.TempDir()
	return config.Config{
		Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc"},
		Network: config.Network{
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, Domain: "cluster.local",
		},
		API: config.API{Port: 6443, Bind: netip.IPv4Unspecified(), KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600},
		Node: config.Node{
			Name: "boat-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		},
	}
}

func apiserverCert(t *testing.T, cfg config.Config) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cfg.Dirs.PKI(), "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// run starts a renewal inside the bubble and returns what it logs and how to set its clock.
func run(t *testing.T, cfg config.Config) (logged *logtest.Hook, setClock func()) {
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.InfoLevel)
	if _, err := pki.EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	set := make(chan struct{})
	done := make(chan error)
	go func() { done <- Renewal{Config: cfg, Log: logger, clockSet: set}.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return hook, func() { set <- struct{}{} }
}

// The bubble's clock starts in the year 2000, before the floor, as on a board without a battery.
const untilTheFloor = 27 * 365 * 24 * time.Hour

func TestRenewsAtTwoThirds(t *testing.T) {
	cfg := testConfig(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(untilTheFloor)
		logged, _ := run(t, cfg)
		first := apiserverCert(t, cfg)
		life := time.Until(first.NotAfter)

		time.Sleep(life/3*2 - 3*time.Hour)
		synctest.Wait()
		if got := apiserverCert(t, cfg); !got.Equal(first) || len(logged.AllEntries()) != 0 {
			t.Fatalf("renewed early: %v, log %v", got.NotBefore, logged.LastEntry())
		}
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		second := apiserverCert(t, cfg)
		if !second.NotAfter.After(first.NotAfter) {
			t.Fatalf("not renewed: valid until %v", second.NotAfter)
		}
		if len(logged.AllEntries()) != 1 {
			t.Errorf("%d log lines, want 1", len(logged.AllEntries()))
		}
		time.Sleep(400 * 24 * time.Hour)
		synctest.Wait()
		if left := time.Until(apiserverCert(t, cfg).NotAfter); left < life/4 {
			t.Errorf("after a year only %v are left", left)
		}
	})
}

func TestClockIsSet(t *testing.T) {
	cfg := testConfig(t)
	synctest.Test(t, func(t *testing.T) {
		_, setClock := run(t, cfg)
		first := apiserverCert(t, cfg)
		if time.Until(first.NotAfter) < 26*365*24*time.Hour {
			t.Fatalf("signed in the year %d and valid until %v only", time.Now().Year(), first.NotAfter)
		}
		// Somebody else's renewal would have to be noticed too: a damaged file stands for a clock that moved.
		if err := os.WriteFile(filepath.Join(cfg.Dirs.PKI(), "apiserver.crt"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		setClock()
		synctest.Wait()
		if got := apiserverCert(t, cfg); got.Equal(first) {
			t.Error("nothing was issued")
		}
	})
}

func TestErrorIsLoggedAndTriedAgain(t *testing.T) {
	cfg := testConfig(t)
	synctest.Test(t, func(t *testing.T) {
		logged, setClock := run(t, cfg)
		key := filepath.Join(cfg.Dirs.PKI(), "apiserver.key")
		if err := os.Chmod(key, 0o644); err != nil {
			t.Fatal(err)
		}
		setClock()
		synctest.Wait()
		if e := logged.LastEntry(); e == nil || e.Level != logrus.ErrorLevel {
			t.Fatalf("logged %v, want an error", e)
		}
		if err := os.Chmod(key, 0o600); err != nil {
			t.Fatal(err)
		}
		logged.Reset()
		time.Sleep(sleepAfterErr + time.Minute)
		synctest.Wait()
		if len(logged.AllEntries()) != 0 {
			t.Errorf("logged %v", logged.LastEntry())
		}
	})
}
