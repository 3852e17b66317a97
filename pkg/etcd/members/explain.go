package members

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// reasons are explanations of etcd's errors, with the fix.
var reasons = []struct {
	err  error
	text string
}{
	{rpctypes.ErrUnhealthy, "too few of the other members have been reachable for the last five seconds"},
	{rpctypes.ErrMemberNotEnoughStarted, "too few members would be left to agree on anything: start the other servers first"},
	{rpctypes.ErrTooManyLearners, "another server is joining"},
	{rpctypes.ErrPeerURLExist, "another member has this address: remove it with coracle etcd remove"},
	{rpctypes.ErrNoLeader, "more than half of the members must run, and do not: start the other servers, or run coracle cluster reset-quorum if they are lost"},
	{rpctypes.ErrTimeout, "more than half of the members must answer, and do not: start the other servers, or run coracle cluster reset-quorum if they are lost"},
	{context.DeadlineExceeded, "more than half of the members must answer, and do not: start the other servers, or run coracle cluster reset-quorum if they are lost"},
}

// explain adds the explanation to an error of etcd.
func explain(err error) error {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return fmt.Errorf("%s (%w)", r.text, err)
		}
	}
	return err
}
