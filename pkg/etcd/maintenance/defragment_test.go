package maintenance

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// TestInVain: a member that gains nothing by a defragmentation, during which it does not answer, does it once an hour at most.
func TestInVain(t *testing.T) {
	waste := members.Status{Members: alone(), Size: 200 * mib, InUse: 90 * mib, Quota: 2048 * mib}
	full := members.Status{Members: alone(), Size: 200 * mib, InUse: 20 * mib, Quota: 200 * mib,
		Alarms: []members.Alarm{{Member: "na", ID: "a", Kind: noSpace}}}
	truly := full
	truly.InUse = 195 * mib
	for _, c := range []struct {
		name string
		etcd etcd
		want int // defragmentations in three hours and a half
	}{
		{"waste that is not freed", etcd{status: waste, stuck: true}, 4},
		{"waste, and it fails", etcd{status: waste, fails: true}, 4},
		{"waste", etcd{status: waste}, 1},
		{"full of old revisions that are not freed", etcd{status: full, stuck: true}, 4},
		{"full of old revisions, and it fails", etcd{status: full, fails: true}, 4},
		{"full of old revisions", etcd{status: full}, 1},
		{"full of old revisions, while a backup is made", etcd{status: full, copied: 10}, 11},
		{"waste, while a backup is made", etcd{status: waste, copied: 10}, 11},
		{"full of data", etcd{status: truly}, 0},
		{"full of data, in a cluster", etcd{status: func() members.Status { s := truly; s.Members = cluster("a", "b"); return s }()}, 0},
		{"waste that is not freed, in a cluster", etcd{status: func() members.Status { s := waste; s.Members = cluster("a", "b"); return s }(), stuck: true}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 3*time.Hour+30*time.Minute)
				defer stop()
				e := &c.etcd
				m := Maintenance{Members: e, Turn: e.turn, Tell: func(context.Context, []Alarm, []Alarm) {}}
				if err := m.Run(ctx, func() {}); err != nil {
					t.Fatal(err)
				}
				got := 0
				for _, did := range e.did {
					if did == "defragment" {
						got++
					}
				}
				if got != c.want {
					t.Errorf("%d defragmentations, not %d", got, c.want)
				}
				if left := slices.Contains(e.did, "disarm NOSPACE of na"); left != (c.name == "full of old revisions" || c.name == "full of old revisions, while a backup is made") {
					t.Errorf("disarmed: %t", left)
				}
			})
		})
	}
}
