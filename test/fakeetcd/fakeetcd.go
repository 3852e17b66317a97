// Package fakeetcd is an etcd in memory, for tests of what uses a client of it, which may be killed after any write.
package fakeetcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrKilled is what a program meets that would have gone on after it was killed.
var ErrKilled = errors.New("killed")

// Etcd is the data, without leases that end and without watches.
type Etcd struct {
	clientv3.KV
	clientv3.Lease
	Data     map[string]*mvccpb.KeyValue
	Writes   int              // how many transactions have written
	Kill     int              // after so many of them the program that uses it is dead; 0 for never
	Written  func(key string) // is called after each of them; it may be nil
	revision int64
}

// Client returns an etcd without data, and a client of it.
func Client(ctx context.Context) (*Etcd, *clientv3.Client) {
	e := &Etcd{Data: map[string]*mvccpb.KeyValue{}}
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Lease = e, e
	return e, client
}

func (e *Etcd) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{Revision: e.revision}
}

// Get implements clientv3.KV.
func (e *Etcd) Get(_ context.Context, from string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	got, end := &clientv3.GetResponse{Header: e.header()}, string(clientv3.OpGet(from, opts...).RangeBytes())
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		if key == from || end != "" && key >= from && key < end {
			got.Kvs = append(got.Kvs, e.Data[key])
		}
	}
	return got, e.dead()
}

// Grant implements clientv3.Lease.
func (e *Etcd) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 1}, e.dead()
}

// Revoke implements clientv3.Lease: the keys of all leases go.
func (e *Etcd) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	maps.DeleteFunc(e.Data, func(_ string, kv *mvccpb.KeyValue) bool { return kv.Lease != 0 })
	return nil, e.dead()
}

// Close implements clientv3.Lease.
func (e *Etcd) Close() error { return nil }

// KeepAlive implements clientv3.Lease.
func (e *Etcd) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	alive := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(alive) })
	return alive, nil
}

// dead returns an error after the command was killed.
func (e *Etcd) dead() error {
	if e.Kill > 0 && e.Writes >= e.Kill {
		return ErrKilled
	}
	return nil
}

// Txn implements clientv3.KV, as far as a key is written if its revision is the given one.
func (e *Etcd) Txn(context.Context) clientv3.Txn { return &txn{etcd: e} }

// Set writes a key without a transaction.
func (e *Etcd) Set(key, value string) {
	e.revision++
	e.Data[key] = &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: e.revision}
}

// txn writes a key if it has not changed.
type txn struct {
	clientv3.Txn
	etcd *Etcd
	when []clientv3.Cmp
	then clientv3.Op
}

func (t *txn) If(when ...clientv3.Cmp) clientv3.Txn { t.when = when; return t }
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops[0]; return t }
func (t *txn) Else(...clientv3.Op) clientv3.Txn     { return t }

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.etcd.dead(); err != nil {
		return nil, err
	}
	key := string(t.then.KeyBytes())
	got := &clientv3.TxnResponse{Header: t.etcd.header()}
	present := t.etcd.Data[key]
	if want := t.when[0].GetCompare().GetModRevision(); want != present.GetModRevision() {
		answer := &etcdserverpb.RangeResponse{}
		if present != nil {
			answer.Kvs = append(answer.Kvs, present)
		}
		got.Responses = []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: answer}}}
		return got, nil
	}
	got.Succeeded = true
	t.etcd.Set(key, string(t.then.ValueBytes()))
	if strings.HasSuffix(key, "-lock") { // an Op does not tell its lease
		t.etcd.Data[key].Lease = 1
	}
	t.etcd.Writes++
	if t.etcd.Written != nil {
		t.etcd.Written(key)
	}
	return got, nil
}
