package rekey

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

// store is etcd's data, of which a page has two objects.
type store struct {
	clientv3.KV
	data map[string]string
}

func (s store) Get(_ context.Context, from string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	got, end := &clientv3.GetResponse{}, string(clientv3.OpGet(from, opts...).RangeBytes())
	for _, key := range slices.Sorted(maps.Keys(s.data)) {
		switch {
		case key < from || key >= end:
		case len(got.Kvs) == 2:
			got.More = true
		default:
			got.Kvs = append(got.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(s.data[key])})
		}
	}
	return got, nil
}

func (s store) Put(_ context.Context, key, value string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	s.data[key] = value
	return &clientv3.PutResponse{}, nil
}

func (s store) Delete(_ context.Context, from string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	end := string(clientv3.OpDelete(from, opts...).RangeBytes())
	maps.DeleteFunc(s.data, func(key, _ string) bool { return key >= from && key < end })
	return &clientv3.DeleteResponse{}, nil
}

// TestRekey: what lets members of the former cluster in goes, everything else stays, with the new authority.
func TestRekey(t *testing.T) {
	stays := []string{
		"secrets/kube-system/a", "secrets/kube-system/bootstrap-tokens", "secrets/shop/bootstrap-token-abcdef", "leases/kube-system/coracle-node-x",
		"leases/shop/a", "services/endpoints/default/shop", "configmaps/kube-system/coredns", "boats/one", "boats/two",
	}
	goes := []string{
		"secrets/kube-system/bootstrap-token-abcdef", "leases/kube-node-lease/x", "leases/kube-system/a-controller", "leases/kube-system/kube-scheduler",
		"masterleases/10.222.0.11", "services/endpoints/default/kubernetes", "endpointslices/default/kubernetes", "certificatesigningrequests/csr-x",
		"configmaps/kube-system/extension-apiserver-authentication",
	}
	s := store{data: map[string]string{}}
	for _, key := range slices.Concat(stays, goes) {
		s.data[Prefix+key] = `{"ca":"` + strings.ReplaceAll(former, "\n", `\n`) + `"}`
	}
	dir := t.TempDir()
	finished := false
	r := Rekey{Request: filepath.Join(dir, "request"), CA: filepath.Join(dir, "ca.crt"), Finish: func() error { finished = true; return nil }}
	r.Dial = func() (*clientv3.Client, error) {
		client := clientv3.NewCtxClient(t.Context())
		client.KV = s
		return client, nil
	}
	if err := errors.Join(os.WriteFile(r.CA, []byte(now), 0o600), rekeyrequest.Request{CA: []byte(former)}.Write(r.Request)); err != nil {
		t.Fatal(err)
	}
	if err := r.rekey(t.Context()); err != nil || !finished {
		t.Fatalf("finished: %v, %v", finished, err)
	}
	for _, key := range stays {
		if value := s.data[Prefix+key]; !strings.Contains(value, "the new one") || strings.Contains(value, "former") {
			t.Errorf("%s is %q", key, value)
		}
	}
	for _, key := range goes {
		if _, there := s.data[Prefix+key]; there {
			t.Errorf("%s is still there", key)
		}
	}
}
