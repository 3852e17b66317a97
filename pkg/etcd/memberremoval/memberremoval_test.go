package memberremoval

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// etcd has members by name; those in running answer.
type etcd struct {
	mu      sync.Mutex
	members []string
	running []string
}

func (e *etcd) List(context.Context) (list []join.Member, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range e.members {
		list = append(list, join.Member{ID: name, Name: name, PeerURLs: []string{name}})
	}
	return list, nil
}

func (e *etcd) Remove(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members = slices.DeleteFunc(e.members, func(m string) bool { return m == id })
	return nil
}

func (e *etcd) Answers(_ context.Context, urls []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.running, urls[0])
}

func (e *etcd) stop(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = slices.DeleteFunc(e.running, func(m string) bool { return m == name })
}

func (e *etcd) names() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.members, " ")
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes("n1", "n2", "n3", "n4")
		e := &etcd{members: []string{"n1", "n2", "n3", "n4", "orphan", "joining"}, running: []string{"n3", "n4", "joining"}} // n1 runs this, whether it answers or not
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { Removal{Own: "n1", Members: e}.run(ctx, nodes) })
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := e.names(); got != want {
				t.Errorf("the members are %q, not %q", got, want)
			}
		}
		expect(time.Second, "n1 n2 n3 n4 orphan joining")
		nodes.delete("n2") // a server that is gone
		expect(grace+time.Second, "n1 n3 n4 orphan joining")
		nodes.delete("n3") // one that runs, and stops later
		nodes.delete("n1") // the one that leads
		expect(registration-10*time.Second, "n1 n3 n4 orphan joining")
		expect(10*time.Second, "n1 n3 n4 joining") // one whose Node was deleted before this server led
		e.stop("n3")
		expect(time.Minute, "n1 n4 joining")
		nodes.delete("n4") // one that comes back
		nodes.add("n4")
		e.stop("n4")
		expect(registration, "n1 n4 joining")
		cancel()
		running.Wait()
	})
}

var _ cache.ListerWatcher = (*nodeList)(nil)
