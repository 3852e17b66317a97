package encryptionconfig

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/test/fakeetcd"
)

// TestOwnConfiguration: with a configuration of the user's, the API server does not start while Secrets may be encrypted with coracle's keys.
func TestOwnConfiguration(t *testing.T) {
	const secret = "/registry/secrets/default/treasure"
	seals := []encryption.Seal{{Name: "a", Key: [32]byte{1}}}
	for name, one := range map[string]struct {
		keys    *encryption.Keys // none was ever made if it is nil
		secret  string
		refused bool
	}{
		"a cluster that never had keys":   {nil, "k8s:enc:kms:v2:provider:x", false},
		"keys that are written with":      {&encryption.Keys{List: []encryption.Key{{Name: "key1"}}, Write: "key1"}, "", true},
		"keys that a Secret needs":        {&encryption.Keys{List: []encryption.Key{{Name: "key1"}, {Name: "key2"}}}, "k8s:enc:secretbox:v1:key2:x", true},
		"keys that nothing needs":         {&encryption.Keys{List: []encryption.Key{{Name: "key1"}}}, "k8s\x00plain", false},
		"keys beside the user's provider": {&encryption.Keys{List: []encryption.Key{{Name: "key1"}}}, "k8s:enc:kms:v2:provider:x", false},
	} {
		t.Run(name, func(t *testing.T) {
			etcd, client := fakeetcd.Client(t.Context())
			if one.keys != nil {
				if err := (encryption.Store{Client: client, Prefix: "/registry", Seals: seals}).Close(t.Context(), encryption.Found{}, one.keys); err != nil {
					t.Fatal(err)
				}
			}
			if one.secret != "" {
				etcd.Set(secret, one.secret)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ready := false
			err := Config{Prefix: "/registry", Dial: func() (*clientv3.Client, error) { return client, nil }, Seals: func() ([]encryption.Seal, error) { return seals, nil }}.
				Run(ctx, func() { ready = true; cancel() })
			if errors.Is(err, errTwo) != one.refused || ready == one.refused {
				t.Errorf("ready: %t, %v", ready, err)
			}
		})
	}
}

// silent is a datastore behind a connection that something between has forgotten.
type silent struct{ clientv3.KV }

// Get implements clientv3.KV.
func (silent) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentDatastore: one that does not answer is asked again.
func TestSilentDatastore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := fakeetcd.Client(t.Context())
		client.KV = silent{}
		f := &follower{Config: Config{Seals: func() ([]encryption.Seal, error) { return nil, nil }}, store: encryption.Store{Client: client}}
		if _, err := f.reload(t.Context(), encryption.Loaded{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
