// Package encryption holds the keys with which the cluster's Secrets are encrypted in etcd, and changes them while the cluster runs. The keys are
// in etcd themselves, sealed with a key that only servers can derive. Package encryptionconfig hands them to a server's API server.
package encryption

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// Key is a key of XSalsa20-Poly1305 (secretbox).
type Key struct {
	Name    string    `json:"name"` // part of each value that is encrypted with it
	Secret  []byte    `json:"secret"`
	Created time.Time `json:"created"`
}

// keyBytes is the length of a secret.
const keyBytes = 32

// Keys are the keys of a cluster. The zero value has none: Secrets are not encrypted.
type Keys struct {
	List  []Key  `json:"keys"`  // Secrets can be read with all of them; the oldest first
	Write string `json:"write"` // the name of the one with which they are written; "" writes them as they are
	Stage Stage  `json:"stage"`
}

// Stage is how far a change of the key has come, in the words of k3s.
type Stage string

// The stages, in their order. The first and the last are at rest.
const (
	Start     Stage = "start"
	Prepared  Stage = "prepare"            // every server can read with the new key
	Rotated   Stage = "rotate"             // every server writes with it
	Disabling Stage = "disable"            // every server writes Secrets as they are
	Finished  Stage = "reencrypt_finished" // no Secret is encrypted with another key than the one that is written with
)

// most is how many keys a cluster keeps to read with. A server that was suspended during several changes may write with a former key before it learns of
// them.
const most = 16

// with returns keys with a further one that nothing is written with yet. The oldest is dropped if there are too many; dropped is its name, or "".
func (k Keys) with(now time.Time) (next Keys, dropped string) {
	number := 0
	for _, one := range k.List {
		n, _ := strconv.Atoi(strings.TrimPrefix(one.Name, "key")) // all names are made here
		number = max(number, n)
	}
	made := Key{Name: "key" + strconv.Itoa(number+1), Secret: make([]byte, keyBytes), Created: now.UTC().Truncate(time.Second)}
	_, _ = rand.Read(made.Secret) // it never fails, see crypto/rand
	k.List = append(slices.Clone(k.List), made)
	if i := slices.IndexFunc(k.List, func(one Key) bool { return one.Name != k.Write }); len(k.List) > most {
		dropped = k.List[i].Name
		k.List = slices.Delete(k.List, i, i+1)
	}
	k.Stage = Prepared
	return k, dropped
}

// newest returns the name of the key that was made last; "" if there is none.
func (k Keys) newest() string {
	if len(k.List) == 0 {
		return ""
	}
	return k.List[len(k.List)-1].Name
}

// inOrder returns the keys as they are tried: the one that is written with first, then the newer ones first.
func (k Keys) inOrder() []Key {
	list := slices.Clone(k.List)
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b Key) int {
		switch {
		case a.Name == k.Write:
			return -1
		case b.Name == k.Write:
			return 1
		}
		return 0
	})
	return list
}

// Config returns the keys as kube-apiserver's EncryptionConfiguration, and the hash of that text as kube-apiserver's metric has it. Secrets that are not
// encrypted can always be read.
func (k Keys) Config() (text []byte, hash string, err error) {
	providers := []apiserverv1.ProviderConfiguration{{Identity: &apiserverv1.IdentityConfiguration{}}}
	if list := k.inOrder(); len(list) > 0 {
		box := &apiserverv1.SecretboxConfiguration{}
		for _, one := range list {
			box.Keys = append(box.Keys, apiserverv1.Key{Name: one.Name, Secret: base64.StdEncoding.EncodeToString(one.Secret)})
		}
		providers = append(providers, apiserverv1.ProviderConfiguration{Secretbox: box})
	}
	if k.Write != "" {
		slices.Reverse(providers)
	}
	text, err = json.Marshal(apiserverv1.EncryptionConfiguration{
		TypeMeta:  metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{Resources: []string{resource}, Providers: providers}},
	})
	sum := sha256.Sum256(text)
	return text, "sha256:" + hex.EncodeToString(sum[:]), err
}

// resource is what is encrypted.
const resource = "secrets"

// mark is what kube-apiserver puts before a value that is encrypted, followed by the key's name and a colon.
const mark = "k8s:enc:secretbox:v1:"

// encrypted is what any encrypted value begins with, whatever the cipher.
const encrypted = "k8s:enc:"

// IsEncrypted reports whether a value in etcd is encrypted, with whatever key and cipher.
func IsEncrypted(value []byte) bool { return bytes.HasPrefix(value, []byte(encrypted)) }

// keyOf returns the name of the key with which a value is encrypted. It is "" for one that is not, and the value's mark for a key that is not coracle's.
func keyOf(value []byte) string {
	text := string(value[:min(len(value), 256)])
	if name, found := strings.CutPrefix(text, mark); found {
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	if rest, found := strings.CutPrefix(text, encrypted); found {
		return encrypted + strings.Join(strings.SplitN(rest, ":", 4)[:min(3, strings.Count(rest, ":"))], ":")
	}
	return ""
}

// Transformer returns what kube-apiserver makes of Config. It reports a value as stale if it is encrypted with another key than the one that is written with.
func (k Keys) Transformer() (value.Transformer, error) {
	plain := value.PrefixTransformer{Transformer: identity.NewEncryptCheckTransformer()}
	var all []value.PrefixTransformer
	for _, one := range k.inOrder() {
		if len(one.Secret) != keyBytes {
			return nil, fmt.Errorf("the encryption key %s has %d bytes instead of %d", one.Name, len(one.Secret), keyBytes)
		}
		all = append(all, value.PrefixTransformer{Prefix: []byte(mark + one.Name + ":"), Transformer: secretbox.NewSecretboxTransformer([keyBytes]byte(one.Secret))})
	}
	if k.Write == "" {
		all = slices.Insert(all, 0, plain)
	} else {
		all = append(all, plain)
	}
	return value.NewPrefixTransformers(errors.New("it is encrypted with a key that this cluster does not have"), all...), nil
}
