package sharedshims

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// TestMain makes the test's executable a shim if it is started as one.
func TestMain(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-id="+prefix) }) {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve is a shim that knows no containers but those whose names are files in its directory.
func serve() {
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		panic(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		panic(err)
	}
	task.RegisterTTRPCTaskService(server, service{})
	_ = server.Serve(context.Background(), listener)
}

type service struct{ task.TTRPCTaskService }

func (service) Shutdown(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
	if containers, _ := filepath.Glob("container-*"); len(containers) == 0 {
		os.Exit(0)
	}
	return &emptypb.Empty{}, nil
}

// tasks is containerd's plugin with the shims of this test.
type tasks struct {
	mu      sync.Mutex
	created map[string]string              // address of each task's shim
	begin   func(id, address string) error // called by Create
	shims   Shims
}

type created struct {
	runtime.Task
	address string
}

func (c created) Endpoint() (string, int) { return c.address, version }

func (t *tasks) Create(_ context.Context, id string, opts runtime.CreateOpts) (runtime.Task, error) {
	if t.begin != nil {
		if err := t.begin(id, opts.Address); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.created[id] = opts.Address
	return created{address: opts.Address}, os.WriteFile(t.container(opts.Address, id), nil, 0o600)
}

// container is the file that says that a shim has a container.
func (t *tasks) container(address, id string) string {
	return filepath.Join(filepath.Dir(strings.TrimPrefix(address, protocol+"+unix://")), "container-"+id)
}

func (t *tasks) Get(_ context.Context, id string) (runtime.Task, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return created{address: t.created[id]}, nil
}

func (t *tasks) Delete(_ context.Context, id string) (*runtime.Exit, error) {
	t.mu.Lock()
	address := t.created[id]
	delete(t.created, id)
	t.mu.Unlock()
	os.Remove(t.container(address, id))
	t.shims.endIfEmpty(filepath.Base(filepath.Dir(address)))
	return &runtime.Exit{}, nil
}

func (*tasks) ID() string                                          { return "" }
func (*tasks) Tasks(context.Context, bool) ([]runtime.Task, error) { return nil, nil }
func (*tasks) PluginInfo(context.Context, any) (any, error)        { return nil, nil }
func (t *tasks) count() (pods map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pods = map[string]int{}
	for _, address := range t.created {
		pods[address]++
	}
	return pods
}

// setup returns a Runtime whose shims are ended with the test.
func setup(t *testing.T) (*Runtime, *tasks) {
	t.Helper()
	dir, err := os.MkdirTemp("", "shims")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := &tasks{created: map[string]string{}, shims: Shims{Program: program, Dir: dir, Socket: filepath.Join(dir, "containerd.sock")}}
	r, err := New(inner, inner.shims, store{}, filepath.Join(dir, "bundles"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		containers, _ := filepath.Glob(filepath.Join(dir, prefix+"*", "container-*"))
		for _, c := range containers {
			os.Remove(c)
		}
		r.mu.Lock()
		shims := slices.Clone(r.shared)
		r.mu.Unlock()
		for _, s := range shims {
			inner.shims.endIfEmpty(s.name)
			<-s.ended
		}
		os.RemoveAll(dir)
	})
	return r, inner
}

var pods = namespaces.WithNamespace(context.Background(), criNamespace)

func (t *tasks) create(r *Runtime, id string) error {
	_, err := r.Create(pods, id, runtime.CreateOpts{Runtime: t.shims.Program})
	return err
}

// TestShare creates pods at the same time, deletes them, and looks how many shims there are.
func TestShare(t *testing.T) {
	r, inner := setup(t)
	var group sync.WaitGroup
	for i := range 3*Capacity - 1 {
		group.Go(func() {
			if err := inner.create(r, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	shims := inner.count()
	for address, n := range shims {
		if n > Capacity {
			t.Errorf("%s has %d pods", address, n)
		}
	}
	if len(shims) != 3 {
		t.Errorf("there are %d shims", len(shims))
	}
	for i := range 3*Capacity - 1 {
		if _, err := r.Delete(pods, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "no shim stays", func() bool {
		left, _ := filepath.Glob(filepath.Join(inner.shims.Dir, prefix+"*"))
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(left) == 0 && len(r.shared) == 0
	})
}

// TestOthers creates what has a shim of its own: containers of a pod, which join that of their sandbox, other runtimes and other namespaces.
func TestOthers(t *testing.T) {
	r, inner := setup(t)
	inner.begin = func(id, address string) error {
		if address != "" {
			t.Errorf("%s joined %s", id, address)
		}
		return errors.New("enough")
	}
	r.Create(pods, "container", runtime.CreateOpts{Runtime: inner.shims.Program, SandboxID: "sandbox"})
	r.Create(pods, "other", runtime.CreateOpts{Runtime: "io.containerd.kata.v2"})
	r.Create(namespaces.WithNamespace(context.Background(), "default"), "ctr", runtime.CreateOpts{Runtime: inner.shims.Program})
	r.on = false
	r.Create(pods, "classic", runtime.CreateOpts{Runtime: inner.shims.Program})
}

// TestLastStays deletes the only pod of a shim while another arrives in it: the deletion waits, since the shim would end.
func TestLastStays(t *testing.T) {
	r, inner := setup(t)
	if err := inner.create(r, "first"); err != nil {
		t.Fatal(err)
	}
	arriving, arrive := make(chan string), make(chan struct{})
	inner.begin = func(_, address string) error {
		arriving <- address
		<-arrive
		return nil
	}
	second := make(chan error)
	go func() { second <- inner.create(r, "second") }()
	address := <-arriving
	deleted := make(chan error)
	go func() {
		_, err := r.Delete(pods, "first")
		deleted <- err
	}()
	select {
	case <-deleted:
		t.Error("the deletion of the last pod did not wait for the one that arrives")
		go func() { deleted <- nil }()
	case <-time.After(100 * time.Millisecond):
	}
	close(arrive)
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if now := inner.count(); now[address] != 1 {
		t.Errorf("the second pod is not in %s: %v", address, now)
	}
}

// TestKilled kills a shim while a pod is created in it: the pod gets another.
func TestKilled(t *testing.T) {
	r, inner := setup(t)
	tries := 0
	inner.begin = func(id, address string) error {
		if tries++; tries > 1 {
			return nil
		}
		r.mu.Lock()
		name := r.shared[0].name
		r.mu.Unlock()
		return errors.Join(errors.New("its shim was killed"), kill(name))
	}
	if err := inner.create(r, "pod"); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
	inner.begin = func(string, string) error { return errors.New("runc fails") }
	if err := inner.create(r, "bad"); err == nil {
		t.Error("a pod that cannot be created was")
	}
}

// TestHung creates a pod in a shim that lives and does not answer: the next try gets another shim.
func TestHung(t *testing.T) {
	r, inner := setup(t)
	if err := inner.create(r, "first"); err != nil {
		t.Fatal(err)
	}
	var hung string
	ctx, cancel := context.WithCancel(pods)
	inner.begin = func(_, address string) error {
		hung = address
		cancel() // the kubelet does not wait any longer
		return context.Cause(ctx)
	}
	if _, err := r.Create(ctx, "pod", runtime.CreateOpts{Runtime: inner.shims.Program}); err == nil {
		t.Error("created in a shim that does not answer")
	}
	inner.begin = nil
	if err := inner.create(r, "pod"); err != nil {
		t.Fatal(err)
	}
	if inner.created["pod"] == hung {
		t.Error("the next try is in the same shim")
	}
}

// kill kills the shim with a name.
func kill(name string) error {
	all, err := process.All("/proc")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p process.Process) bool { return slices.Contains(p.Args, "-id="+name) })
	if i < 0 {
		return fmt.Errorf("%s does not run", name)
	}
	return all[i].Signal(unix.SIGKILL)
}

// TestResume takes over shims after a restart: one with pods, which is filled up, an empty one, which ends, and the directory of one that has ended.
func TestResume(t *testing.T) {
	before, inner := setup(t)
	for _, id := range []string{"a", "b"} {
		if err := inner.create(before, id); err != nil {
			t.Fatal(err)
		}
		bundle := filepath.Join(inner.shims.Dir, "bundles", id)
		params := fmt.Sprintf(`{"version":3,"address":%q,"protocol":"ttrpc"}`, strings.TrimPrefix(inner.created[id], protocol+"+"))
		if err := errors.Join(os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "bootstrap.json"), []byte(params), 0o600),
			os.WriteFile(filepath.Join(bundle, "sandbox"), []byte(id), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := inner.shims.start(func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(inner.shims.Dir, prefix+"gone"), 0o700); err != nil {
		t.Fatal(err)
	}
	after, err := New(inner, inner.shims, store{}, filepath.Join(inner.shims.Dir, "bundles"), true)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "one shim stays", func() bool {
		after.mu.Lock()
		defer after.mu.Unlock()
		left, _ := filepath.Glob(filepath.Join(inner.shims.Dir, prefix+"*"))
		return len(after.shared) == 1 && len(after.shared[0].pods) == 2 && len(left) == 1
	})
	if err := inner.create(after, "c"); err != nil {
		t.Fatal(err)
	}
	if n := inner.count(); len(n) != 1 {
		t.Errorf("the third pod is in another shim: %v", n)
	}
}

func waitFor(t *testing.T, what string, true func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !true(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("in 20 s it did not happen that %s", what)
		}
	}
}
