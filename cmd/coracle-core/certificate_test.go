package main

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

func TestCertificateStatus(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	const day = 24 * time.Hour
	for _, test := range []struct {
		e    pki.Expiry
		want string
	}{
		{pki.Expiry{NotAfter: in(365 * day)}, certificateOK}, // an authority
		{pki.Expiry{NotAfter: in(-time.Second)}, certificateExpired},
		{pki.Expiry{NotBefore: in(time.Minute), NotAfter: in(365 * day)}, certificateExpired},
		{pki.Expiry{NotAfter: in(110 * day), RenewAt: in(-10 * time.Hour), RenewBy: in(14 * time.Hour)}, certificateOK},
		{pki.Expiry{NotAfter: in(110 * day), RenewAt: in(-30 * time.Hour), RenewBy: in(-6 * time.Hour)}, certificateLate},
		{pki.Expiry{Error: "it is damaged"}, certificateDamaged},
	} {
		if got := certificateStatus(test.e, now); got != test.want {
			t.Errorf("%+v is %s instead of %s", test.e, got, test.want)
		}
	}
}
