package members

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// alarmText is the form of an alarm among the errors in a status: memberID:123 alarm:NOSPACE.
var alarmText = regexp.MustCompile(`memberID:(\d+)\s+alarm:(\w+)`)

// alarms parses the alarms in the errors of a status. A request for the list of alarms would be a write.
func alarms(errors []string, members []MemberStatus) []Alarm {
	list := []Alarm{}
	for _, text := range errors {
		found := alarmText.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		number, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			continue
		}
		one := Alarm{Member: ID(number), ID: ID(number), Kind: found[2]}
		for _, m := range members {
			if m.ID == one.ID && m.Name != "" {
				one.Member = m.Name
			}
		}
		list = append(list, one)
	}
	return list
}

// Disarm disarms an alarm. etcd raises it again if its cause persists.
func (m *Members) Disarm(ctx context.Context, alarm Alarm) error {
	id, err := strconv.ParseUint(alarm.ID, 16, 64)
	if err != nil {
		return fmt.Errorf("reading the ID of a member: %w", err)
	}
	kind, ok := pb.AlarmType_value[alarm.Kind]
	if !ok {
		return fmt.Errorf("etcd has no alarm %s", alarm.Kind)
	}
	return m.do(func(client *clientv3.Client) error {
		if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: id, Alarm: pb.AlarmType(kind)}); err != nil {
			return fmt.Errorf("disarming alarm %s of %s: %w", alarm.Kind, alarm.Member, explain(err))
		}
		return nil
	})
}

// Lead makes another member the leader. The local member must be the leader.
func (m *Members) Lead(ctx context.Context, id string) error {
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return fmt.Errorf("reading the ID of a member: %w", err)
	}
	return m.do(func(client *clientv3.Client) error {
		if _, err := client.MoveLeader(ctx, number); err != nil {
			return fmt.Errorf("handing the lead of etcd over: %w", explain(err))
		}
		return nil
	})
}

// do calls work with a client of the local member.
func (m *Members) do(work func(*clientv3.Client) error) error {
	client, err := m.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	return work(client)
}
