package pki

import (
	"testing"
	"time"
)

// TestShortLife: a certificate lives as long as is configured, is renewed after two thirds of it, and one that lives longer is issued again.
func TestShortLife(t *testing.T) {
	cfg := testConfig(t)
	if _, err := EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	for _, life := range []time.Duration{3 * time.Minute, 24 * time.Hour, 90 * 24 * time.Hour} {
		cfg.CertificateLife = life
		now := time.Now()
		report, err := EnsureServer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := readCert(leafNamed("apiserver").certFile(cfg.Dirs))
		if err != nil {
			t.Fatal(err)
		}
		shorter := life == 3*time.Minute // the others are longer than the one before, whose end is awaited
		if got := cert.NotAfter.Sub(now); shorter && (got < life-time.Minute || got > life+time.Minute) {
			t.Errorf("with %s it is valid for %s", life, got)
		}
		if left := cert.NotAfter.Sub(renewAt(cert)); shorter && (left < life/4 || left > life/2) {
			t.Errorf("with %s it is renewed %s before its end", life, left)
		}
		if shorter && (len(report.Issued) == 0 || report.Next.Before(now.Add(life/2))) {
			t.Errorf("with %s: %+v", life, report)
		}
		if again, err := EnsureServer(cfg); err != nil || len(again.Issued) > 0 {
			t.Errorf("with %s it is issued at each look: %v, %v", life, again.Issued, err)
		}
	}
	// A life of before this setting.
	whole := leafTemplate(desired{leaf: leafNamed("admin")}, time.Now())
	if got := whole.NotAfter.Sub(renewAt(whole)); got != leafLife/3 {
		t.Errorf("a year's certificate is renewed %s before its end", got)
	}
}
