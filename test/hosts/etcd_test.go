package hosts

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestSame: other data is another error than data that cannot be compared yet.
func TestSame(t *testing.T) {
	hash := func(hash uint32, compacted int64) *clientv3.HashKVResponse {
		return &clientv3.HashKVResponse{Hash: hash, CompactRevision: compacted}
	}
	for name, c := range map[string]struct {
		hashes          []*clientv3.HashKVResponse
		good, different bool
	}{
		"the same":           {[]*clientv3.HashKVResponse{hash(1, 7), hash(1, 7), hash(1, 7)}, true, false},
		"one differs":        {[]*clientv3.HashKVResponse{hash(1, 7), hash(1, 7), hash(2, 7)}, false, true},
		"one is not compact": {[]*clientv3.HashKVResponse{hash(1, 7), hash(2, 3), hash(1, 7)}, false, false},
	} {
		if err := same(c.hashes); (err == nil) != c.good || errors.Is(err, errDifferent) != c.different {
			t.Errorf("%s: %v", name, err)
		}
	}
}
