package member

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// TestFull fills the database with old revisions of one key, and makes room again.
func TestFull(t *testing.T) {
	e := newEtcd(t)
	e.Args = []string{"quota-backend-bytes=" + strconv.Itoa(16<<20)}
	mustRun(t, e)
	c := client(t, e)
	defer c.Close()
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = c.Put(t.Context(), "key", fmt.Sprint(i, strings.Repeat("x", 100<<10)))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	m := as(e)
	before := own(t, m)
	if len(before.Alarms) != 1 || before.Alarms[0].Kind != "NOSPACE" || before.Alarms[0].Member != "n1" || before.Quota != 16<<20 {
		t.Fatalf("the status is %+v", before)
	}
	if err := errors.Join(m.Compact(t.Context()), m.Defragment(t.Context()), m.Disarm(t.Context(), before.Alarms[0])); err != nil {
		t.Fatal(err)
	}
	if after := own(t, m); len(after.Alarms) != 0 || after.Size > 2<<20 {
		t.Errorf("the status is %+v", after)
	}
	put(t, e, "key", "x")
}

func own(t *testing.T, m *members.Members) members.Status {
	t.Helper()
	s, err := m.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCorrupt raises the alarm that etcd raises when a member's data differs, and follows the advice.
func TestCorrupt(t *testing.T) {
	e, stop := cluster(t, 3)
	put(t, e[0], "a", "1")
	m := as(e[0])
	status, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(status.Members, func(m members.MemberStatus) bool { return m.Name == "n3" })
	raise(t, e[0], status.Members[i].ID)
	c := client(t, e[1])
	defer c.Close()
	if _, err := c.Put(t.Context(), "a", "2"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("writing: %v", err)
	}
	alarms := own(t, as(e[1])).Alarms
	if len(alarms) != 1 || alarms[0].Kind != "CORRUPT" || alarms[0].Member != "n3" {
		t.Fatalf("the alarms are %+v", alarms)
	}
	stop[2]()
	if err := m.Remove(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	if err := m.Disarm(t.Context(), alarms[0]); err != nil {
		t.Fatal(err)
	}
	put(t, e[1], "a", "3")
	mustRun(t, e[2])
	want(t, e[2], "a", "3")
}

func raise(t *testing.T, e *Etcd, id string) {
	t.Helper()
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+e.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: number, Alarm: pb.AlarmType_CORRUPT}
	if _, err := pb.NewMaintenanceClient(conn).Alarm(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}
