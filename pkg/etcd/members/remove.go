package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Remove removes the member with a name or ID. It fails if too few of the remaining members answer.
func (m *Members) Remove(ctx context.Context, nameOrID string) error {
	return m.do(func(client *clientv3.Client) error {
		got, err := list(ctx, client)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(got.Members, func(one *pb.Member) bool { return one.Name == nameOrID || ID(one.ID) == nameOrID })
		if i < 0 {
			return fmt.Errorf("%w: %s", ErrNoMember, nameOrID)
		}
		return m.remove(ctx, client, got.Members[i], got)
	})
}

// ErrNoMember is the error if etcd has no such member.
var ErrNoMember = errors.New("etcd has no such member")

// remove removes a member, unless too few of the others answer. etcd's own check is disabled, see member.config: it requires that members
// have been connected for some time.
func (m *Members) remove(ctx context.Context, client *clientv3.Client, gone *pb.Member, all *clientv3.MemberListResponse) error {
	if !gone.IsLearner {
		voters, answering, silent := 0, 0, []string{}
		for _, one := range all.Members {
			switch {
			case one.ID == gone.ID || one.IsLearner:
				continue
			case one.ID == all.Header.MemberId || m.Answers(ctx, one.PeerURLs):
				answering++
			default:
				silent = append(silent, Label(one))
			}
			voters++
		}
		if voters == 0 {
			return fmt.Errorf("%s is etcd's only member: it cannot be removed", Label(gone))
		}
		if answering < voters/2+1 {
			return fmt.Errorf("without %s, %d of the remaining %d members of etcd would have to run, and %s does not answer: start that first",
				Label(gone), voters/2+1, voters, strings.Join(silent, " and "))
		}
	}
	_, err := client.MemberRemove(ctx, gone.ID)
	if err == nil || errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return fmt.Errorf("removing %s (%s) from etcd: %w", Label(gone), ID(gone.ID), explain(err))
}
