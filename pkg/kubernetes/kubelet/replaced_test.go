package kubelet

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
)

// TestReplaced: the kubelet ends when its certificate is replaced or removed, and not by its own rotation.
func TestReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, k Kubelet)
		own    bool // the kubelet has made it
		ends   bool
	}{
		"nothing":      {func(*testing.T, Kubelet) {}, false, false},
		"its rotation": {func(t *testing.T, k Kubelet) { writeCertificates(t, k, time.Now()) }, true, false},
		"replaced":     {func(t *testing.T, k Kubelet) { writeCertificates(t, k, time.Now()) }, false, true},
		"removed":      {func(t *testing.T, k Kubelet) { _ = os.Remove(filepath.Join(k.PKI, currentCert)) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := Kubelet{Name: "boat", PKI: t.TempDir()}
			k.ClientCA = filepath.Join(k.PKI, "ca.crt")
			file := filepath.Join(k.PKI, currentCert)
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(clock.Floor.Add(100 * 24 * time.Hour)))
				writeCertificates(t, k, time.Now())
				load := func() *tls.Certificate {
					pair, err := tls.LoadX509KeyPair(file, file)
					if err != nil {
						t.Fatal(err)
					}
					return &pair
				}
				used, end := load(), make(chan error, 1)
				go k.awaitReplaced(t.Context(), func() *tls.Certificate { return used }, end)
				synctest.Wait()
				c.change(t, k)
				if c.own {
					used = load()
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				select {
				case err := <-end:
					if !c.ends || !errors.Is(err, errReplaced) {
						t.Error(err)
					}
				default:
					if c.ends {
						t.Error("it goes on")
					}
				}
			})
		})
	}
}
