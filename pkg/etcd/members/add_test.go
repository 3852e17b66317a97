package members

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

func (c *cluster) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	return &clientv3.MemberListResponse{Header: &pb.ResponseHeader{MemberId: 1}, Members: c.members}, nil
}

func (c *cluster) MemberAddAsLearner(_ context.Context, urls []string) (*clientv3.MemberAddResponse, error) {
	c.added = append(c.added, urls...)
	return &clientv3.MemberAddResponse{Member: &pb.Member{ID: 9, PeerURLs: urls}}, nil
}

// TestAdd adds member n9 to a cluster of this server, member 1, and others that do not answer.
func TestAdd(t *testing.T) {
	server := api(t, "") // it answers 404 to /version, so that it counts as silent
	cert, key := pair(t, server)
	const own, new = "https://192.0.2.1:2380", "https://192.0.2.9:2380"
	silent := []string{server.URL}
	for _, tt := range []struct {
		name    string
		other   *pb.Member
		seen    time.Duration // how long ago a learner was seen first
		busy    bool
		refused string
		removed bool // the other
	}{
		{name: "alone"},
		{name: "a learner of before", other: &pb.Member{ID: 2, Name: "n9", IsLearner: true, PeerURLs: silent}, removed: true},
		{name: "a learner at its address", other: &pb.Member{ID: 2, Name: "n2", IsLearner: true, PeerURLs: []string{new}}, removed: true},
		{name: "its former member", other: &pb.Member{ID: 2, Name: "n9", PeerURLs: silent}, removed: true},
		{name: "this server's name", other: &pb.Member{ID: 1, Name: "n9", PeerURLs: []string{own}}, refused: "n9 at " + new + " is this server"},
		{name: "this server's address", other: &pb.Member{ID: 1, Name: "n1", PeerURLs: []string{new}}, refused: "is this server"},
		{name: "another that joins", other: &pb.Member{ID: 2, IsLearner: true, PeerURLs: silent}, busy: true},
		{name: "another that joins still", other: &pb.Member{ID: 2, IsLearner: true, PeerURLs: silent}, seen: learnerGrace / 2, busy: true},
		{name: "another that came no further", other: &pb.Member{ID: 2, IsLearner: true, PeerURLs: silent}, seen: learnerGrace, removed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &Members{CA: cert, Cert: cert, Key: key}
			c := &cluster{members: []*pb.Member{{ID: 1, Name: "n1", PeerURLs: []string{own}}}}
			if tt.other != nil {
				c.members = slices.DeleteFunc(append(c.members, tt.other), func(one *pb.Member) bool { return one.ID == tt.other.ID && one != tt.other })
			}
			if tt.seen > 0 {
				m.learning = map[uint64]time.Time{2: time.Now().Add(-tt.seen)}
			}
			_, err := m.tryAdd(t.Context(), &clientv3.Client{Cluster: c}, join.AddMember{Name: "n9", PeerURL: new})
			ok := !tt.busy && tt.refused == ""
			if (err == nil) != ok || errors.Is(err, errBusy) != tt.busy || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("got %v", err)
			}
			if slices.Equal(c.added, []string{new}) != ok || slices.Equal(c.removed, []uint64{2}) != tt.removed || len(c.removed) > 1 {
				t.Errorf("added %q, removed %d", c.added, c.removed)
			}
		})
	}
}
