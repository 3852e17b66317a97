// Package rekey turns a copy of a cluster's data into the data of a new cluster, before its API is served for the first
// time. It deletes what would give members of the former cluster access, and replaces the former authority and addresses.
package rekey

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

// Rekey is the component. Once it is ready it has no more work.
type Rekey struct {
	// Request is the file of the request. Finish is called when all is done.
	Request string
	Finish  func() error
	// Passphrase opens the former cluster's keys, and seals the new ones, if it did so before.
	Passphrase *encryption.Passphrase
	// CA is the file with the new authority's certificate.
	CA string
	// Seals returns the new cluster's seals of its encryption keys.
	Seals func() ([]encryption.Seal, error)
	// Dial connects to etcd.
	Dial func() (*clientv3.Client, error)
}

// Prefix is the first part of all keys. It is fixed, because only the data of coracle's own etcd can be copied.
const Prefix = "/registry/"

// claims is the prefix of the Leases that say which machine owns which node name.
const claims = "leases/kube-system/" + endpoint.ClaimPrefix

// deleted are ranges of keys, the end excluded: objects of the former cluster's machines and processes, and credentials that
// members of the former cluster know.
var deleted = [][2]string{
	below("leases/kube-node-lease/"),
	{"leases/kube-system/", claims}, // leader election
	{end(claims), end("leases/kube-system/")},
	below("masterleases/"), // this and the next two belong to API servers
	below("services/endpoints/default/kubernetes"),
	below("endpointslices/default/kubernetes"),
	below("certificatesigningrequests/"),
	below("secrets/kube-system/bootstrap-token-"),
	below("coracle.io/authorities"),                                    // the former cluster's, which this one cannot open
	below("configmaps/kube-system/extension-apiserver-authentication"), // the API server would add to the former content
}

func below(prefix string) [2]string { return [2]string{prefix, end(prefix)} }

func end(prefix string) string { return clientv3.GetPrefixRangeEnd(prefix) }

// Run changes the data. It can be interrupted at any point and run again.
func (r Rekey) Run(ctx context.Context, ready func()) error {
	if err := r.rekey(ctx); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return nil
}

func (r Rekey) rekey(ctx context.Context) error {
	request, ok, err := rekeyrequest.Read(r.Request)
	if err != nil || !ok {
		return err
	}
	began := time.Now()
	ca, err := os.ReadFile(r.CA)
	if err != nil {
		return fmt.Errorf("reading the new authority: %w", err)
	}
	client, err := r.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	for _, keys := range deleted {
		if _, err := client.Delete(ctx, Prefix+keys[0], clientv3.WithRange(Prefix+keys[1])); err != nil {
			return fmt.Errorf("removing what belongs to the former cluster: %w", err)
		}
	}
	e := newEdit(request, ca)
	keys := encryption.Store{Client: client, Prefix: strings.TrimSuffix(Prefix, "/"), Passphrase: r.Passphrase}
	if err := r.newKeys(ctx, &keys, request, e); err != nil {
		return err
	}
	changed, err := rewriteAll(ctx, client, e)
	if err != nil {
		return err
	}
	if e.secrets != nil {
		if err := keys.Forget(ctx); err != nil {
			return fmt.Errorf("removing the former cluster's encryption keys: %w", err)
		}
	}
	if err := r.Finish(); err != nil {
		return fmt.Errorf("noting that this is a cluster of its own: %w", err)
	}
	logrus.WithField("component", "rekey").WithField("took", time.Since(began).Round(time.Millisecond)).
		Infof("made a copy of a cluster one of its own; %d objects differ", changed)
	return nil
}

// newKeys makes encryption keys for the new cluster if the former one had some, and sets what reads and writes Secrets.
func (r Rekey) newKeys(ctx context.Context, keys *encryption.Store, request rekeyrequest.Request, e *edit) (err error) {
	if len(request.Seal) != len(encryption.Seal{}.Key) { // of a snapshot from before anything was encrypted
		return nil
	}
	formerName, err := pki.CAPin(request.CA)
	if err != nil {
		return err
	}
	if keys.Seals, err = r.Seals(); err != nil {
		return err
	}
	both, ok, err := keys.Refound(ctx, encryption.Seal{Name: formerName, Key: [32]byte(request.Seal)})
	if err != nil || !ok {
		return err
	}
	e.secrets, err = both.Transformer()
	return err
}

// page is how many objects are read at a time.
const page = 500

// rewriteAll edits every object and returns how many changed.
func rewriteAll(ctx context.Context, client *clientv3.Client, e *edit) (changed int, err error) {
	from, end := Prefix, clientv3.GetPrefixRangeEnd(Prefix)
	for {
		got, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return changed, fmt.Errorf("reading the former cluster's objects: %w", err)
		}
		for _, kv := range got.Kvs {
			value, err := e.stored(ctx, string(kv.Key), kv.Value)
			if err != nil {
				return changed, fmt.Errorf("changing %s: %w", kv.Key, err)
			}
			if value == nil {
				continue
			}
			if _, err := client.Put(ctx, string(kv.Key), string(value), clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
				return changed, fmt.Errorf("changing %s: %w", kv.Key, err)
			}
			changed++
		}
		if !got.More {
			return changed, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}
