package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// TestAuthoritiesChangeUnderLoad: no change is lost while the members' authority is replaced, and all connections of the former one end.
func TestAuthoritiesChangeUnderLoad(t *testing.T) {
	e, _ := cluster(t, 3)
	ended, end := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 2 * len(e) {
		one := e[i%len(e)]
		client := client(t, one)
		defer client.Close()
		load.Go(func() {
			for n := 0; ended.Err() == nil; n++ {
				began := time.Now()
				_, err := client.Put(t.Context(), fmt.Sprint("load", i), fmt.Sprint(n))
				if errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) { // on a busy machine another member may be elected
					t.Logf("change %d at %s: %v", n, one.Name, err)
				} else if took := time.Since(began); err != nil || took > 5*time.Second {
					t.Errorf("change %d at %s: %v after %s", n, one.Name, err, took)
				}
			}
		})
	}
	defer func() {
		end()
		load.Wait()
	}()
	former := authority()
	before := former
	for range 5 {
		next := newSigner(&former) // for which all vouch that know the first one
		for _, one := range e {
			files := next.certificate(t, one.Peer.Addr().String())
			both := slices.Concat(encode("CERTIFICATE", next.Raw), encode("CERTIFICATE", before.Raw))
			if err := atomicfile.Write(one.TLS.CA, both, 0o600); err != nil {
				t.Fatal(err)
			}
			for from, to := range map[string]string{files.Key: one.TLS.Key, files.Cert: one.TLS.Cert} {
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, one := range e {
			if err := atomicfile.Write(one.TLS.CA, encode("CERTIFICATE", next.Raw), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, one := range e {
			began := time.Now()
			for len(one.opened.inside.former()) > 0 {
				if <-time.After(10 * time.Millisecond); time.Since(began) > 30*time.Second { // files are looked at seldom if that takes long
					t.Fatalf("%s has connections of the former authority", one.Name)
				}
			}
			t.Logf("%s has ended the former connections after %s", one.Name, time.Since(began).Round(time.Millisecond))
		}
		before = next
	}
}
