package maintenance

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

func TestTurn(t *testing.T) {
	client := fake.NewClientset()
	a, b := Cluster{Client: client, Node: "a"}, Cluster{Client: client, Node: "b"}
	for range 2 { // the Lease is made, and given back
		did, err := a.Turn(t.Context(), func(ctx context.Context) error {
			if other, err := b.Turn(ctx, func(context.Context) error { return nil }); other || err != nil {
				t.Errorf("both at once: %v", err)
			}
			return nil
		})
		if !did || err != nil {
			t.Errorf("a did not get its turn: %v", err)
		}
	}
	if did, err := b.Turn(t.Context(), func(context.Context) error { return nil }); !did || err != nil {
		t.Errorf("b did not get its turn: %v", err)
	}
}

func TestEvent(t *testing.T) {
	client := fake.NewClientset()
	c := Cluster{Client: client, Node: "a"}
	if err := c.Event(t.Context(), []Alarm{{members.Alarm{Member: "a", Kind: "NOSPACE"}, "delete something"}}, nil); err != nil {
		t.Fatal(err)
	}
	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatal(events, err)
	}
	if e := events.Items[0]; e.Message != "NOSPACE of a: delete something. " || e.Reason != "EtcdAlarm" || e.InvolvedObject.Name != "a" {
		t.Errorf("the event is %+v", e)
	}
}
