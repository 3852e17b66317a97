package members

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// cluster is the part of a client that lists, adds and removes members.
type cluster struct {
	clientv3.Cluster
	members []*pb.Member
	added   []string // URLs
	removed []uint64
}

func (c *cluster) MemberRemove(_ context.Context, id uint64) (*clientv3.MemberRemoveResponse, error) {
	c.removed = append(c.removed, id)
	return &clientv3.MemberRemoveResponse{}, nil
}

// TestRemoveKeepsQuorum removes the last member of a cluster in which only this server, member 1, answers: more than half of
// the remaining voters must answer, or etcd would accept no writes afterwards.
func TestRemoveKeepsQuorum(t *testing.T) {
	server := api(t, "") // it answers 404 to /version, so that it counts as silent
	cert, key := pair(t, server)
	m := &Members{CA: cert, Cert: cert, Key: key}
	for _, tt := range []struct {
		voters  uint64
		learner bool // the member to be removed
		refused string
	}{
		{voters: 1, refused: "only member"},
		{voters: 2},
		{voters: 3, refused: "2 of the remaining 2 members"},
		{voters: 4, refused: "2 of the remaining 3 members"},
		{voters: 3, learner: true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			all := &clientv3.MemberListResponse{Header: &pb.ResponseHeader{MemberId: 1}}
			for id := uint64(1); id <= tt.voters; id++ {
				all.Members = append(all.Members, &pb.Member{ID: id, Name: fmt.Sprint("n", id), PeerURLs: []string{server.URL}})
			}
			gone := all.Members[len(all.Members)-1]
			gone.IsLearner = tt.learner
			c := &cluster{}
			err := m.remove(t.Context(), &clientv3.Client{Cluster: c}, gone, all)
			if tt.refused == "" {
				if err != nil || len(c.removed) != 1 || c.removed[0] != gone.ID {
					t.Errorf("removed %d, %v", c.removed, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.refused) || len(c.removed) > 0 {
				t.Errorf("removed %d, %v", c.removed, err)
			}
		})
	}
}
