package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

func TestIsShim(t *testing.T) {
	c := Containerd{Shim: "/bin/shim", Socket: "/run/c.sock"}
	tests := []struct {
		cmdline string
		want    bool
	}{
		{"/bin/shim -namespace k8s.io -id abc -address /run/c.sock", true},
		{"/bin/shim -namespace k8s.io -id abc -address /run/other.sock", false},
		{"/data/0123/shim -namespace k8s.io -id abc -address /run/c.sock", true},
		{"/bin/shim -namespace k8s.io -id=shared-123 -address /run/c.sock", true},
		{"/bin/other -namespace k8s.io -id abc -address /run/c.sock", false},
		{"/bin/shim -namespace k8s.io -address /run/c.sock -id abc delete", false},
		{"/bin/shim -id", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := c.isShim(process.Process{Args: strings.Split(tt.cmdline, " ")}); got != tt.want {
			t.Errorf("%q is a shim: %t", tt.cmdline, got)
		}
	}
}

func TestNamespaceOf(t *testing.T) {
	tests := []struct{ info, want string }{
		{`{"sandboxMetadata":{"Version":"v1","Metadata":{"NetNSPath":"/var/run/netns/cni-1"}}}`, "/var/run/netns/cni-1"},
		{`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/cni-2"}]}}}`, "/run/netns/cni-2"},
		{`{}`, ""},
	}
	for _, tt := range tests {
		if got, err := namespaceOf(tt.info); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v", tt.info, got, err)
		}
	}
	if _, err := namespaceOf("nonsense"); err == nil {
		t.Error("nonsense is understood")
	}
}

func TestMentions(t *testing.T) {
	const ours, foreign = "cni-01234567-89ab-cdef-0123-456789abcdef", "cni-fedcba98-7654-3210-fedc-ba9876543210"
	database := []byte("\x00\x01{\"NetNSPath\":\"/var/run/netns/" + ours + "\"}")
	for name, want := range map[string]bool{ours: true, foreign: false, "cni-0123": false} {
		if got := mentions(database, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// noPods is a CRI that knows one container and no sandbox.
type noPods struct{ cri.RuntimeServiceClient }

func (noPods) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

func (noPods) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "known"}}}, nil
}

// TestRemoveOrphans ends the shim without a bundle and the container that CRI does not know, and not those of pods that run.
func TestRemoveOrphans(t *testing.T) {
	dir := t.TempDir()
	c := Containerd{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "sock"), Shim: filepath.Join(dir, "shim")}
	meta := filepath.Join(c.Root, "io.containerd.metadata.v1.bolt")
	const ofCRI = `{"annotations":{"io.kubernetes.cri.container-type":"container"}}`
	for id, spec := range map[string]string{"live": ofCRI, "known": ofCRI, "foreign": "{}", "forgotten": ofCRI} {
		bundle := filepath.Join(c.bundles(), id)
		if err := errors.Join(os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(meta, 0o700), os.WriteFile(filepath.Join(meta, "meta.db"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	// One that runs has three containers.
	containers := fmt.Sprintf(`if [ $3 = live ]; then for c in known foreign forgotten; do sleep 600 & printf $! >%s/$c/init.pid; done; fi; read line; kill $(jobs -p)`, c.bundles())
	ended := map[string]chan struct{}{}
	for _, id := range []string{"live", "orphan"} {
		shim := exec.Command("sh")
		shim.Args = []string{c.Shim, "-c", containers, "-address", c.Socket, "-id", id}
		hold, err := shim.StdinPipe()
		if err == nil {
			err = shim.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ended[id] = make(chan struct{})
		go func() { _ = shim.Wait(); close(ended[id]) }()
		t.Cleanup(func() { hold.Close(); <-ended[id] })
		await(t, "the start of a shim", func() bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", shim.Process.Pid))
			return strings.HasPrefix(string(line), c.Shim)
		})
	}
	runs := func(id string) bool {
		text, err := os.ReadFile(filepath.Join(c.bundles(), id, "init.pid"))
		pid, malformed := strconv.Atoi(string(text))
		p, gone := process.Find(pid)
		return errors.Join(err, malformed, gone) == nil && !p.Ended()
	}
	await(t, "the start of the containers", func() bool { return runs("known") && runs("foreign") && runs("forgotten") })
	t.Run("on a disk that is full again", func(t *testing.T) {
		small := c
		small.Root = t.TempDir()
		if err := unix.Mount("tmpfs", small.Root, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("mounting a small file system: %v", err)
		}
		defer unix.Unmount(small.Root, unix.MNT_DETACH)
		for range startsForRoom {
			if err := small.removeOrphans(t.Context(), noPods{}, true); !errors.Is(err, errNoRoom) || !runs("forgotten") {
				t.Errorf("%v; the container that CRI does not know runs: %t", err, runs("forgotten"))
			}
		}
		if small.mayStartAgain() {
			t.Error("there is no end of starts")
		}
	})
	if err := c.removeOrphans(t.Context(), noPods{}, true); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the container that CRI does not know", func() bool { return !runs("forgotten") })
	if !runs("known") || !runs("foreign") {
		t.Error("a container has ended that CRI knows, or that is none of CRI's")
	}
	select {
	case <-ended["orphan"]:
	case <-time.After(time.Minute):
		t.Error("the orphan runs")
	}
	select {
	case <-ended["live"]:
		t.Error("the shim of a running pod has ended")
	case <-time.After(100 * time.Millisecond):
	}
}

// await waits until ok returns true, at most a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for " + what)
		}
	}
}
