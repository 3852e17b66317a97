// Package e2e tests coracle with real pods on hosts made of namespaces.
package e2e

import (
	"embed"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/coracle-dev/coracle/test/hosts"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

//go:embed testdata
var testdata embed.FS

// agnhost is the image that Kubernetes' own tests use, made locally.
var agnhost = imageutils.GetE2EImage(imageutils.Agnhost)

// atOnce is the number of subtests of a test that run in parallel and share the test's slots.
const atOnce = 3

// newHost is a host on its own wire, with the test images. Like a minimal distribution or a container image it has no
// databases of names such as /etc/protocols: coracle brings what it needs.
func newHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	return newHostWith(t, name, hosts.Options{})
}

// newFreshHost is newHost with its own directory for the unpacked payload, which is empty.
func newFreshHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	return newHostWith(t, name, hosts.Options{OwnPayload: true})
}

func newHostWith(t *testing.T, name string, opts hosts.Options) *hosts.Host {
	t.Helper()
	hosts.Bin(t)
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24")), name, opts)
	h.CopyImages()
	h.Run("rm", "-rf", "/etc/protocols", "/etc/services", "/etc/networks", "/etc/nsswitch.conf", "/etc/iproute2", "/usr/share/zoneinfo", "/etc/localtime")
	return h
}

// newLonelyHost is a host with only a loopback interface.
func newLonelyHost(t *testing.T) *hosts.Host {
	t.Helper()
	hosts.Bin(t)
	h := hosts.New(t, nil, "lonely", hosts.Options{})
	h.CopyImages()
	return h
}

// newCluster is a host with a server whose node is Ready and whose DNS answers.
func newCluster(t *testing.T, args ...string) (*hosts.Host, *hosts.Server) {
	t.Helper()
	return startCluster(t, newHost(t, "solo"), args...)
}

// newFreshCluster is newCluster with its own directory for the unpacked payload.
func newFreshCluster(t *testing.T) (*hosts.Host, *hosts.Server) {
	t.Helper()
	return startCluster(t, newFreshHost(t, "solo"))
}

func startCluster(t *testing.T, h *hosts.Host, args ...string) (*hosts.Host, *hosts.Server) {
	t.Helper()
	s := h.Start(args...)
	waitReady(t, h)
	return h, s
}

func waitReady(t *testing.T, h *hosts.Host) {
	t.Helper()
	h.Coracle("wait", "--timeout", "3m")
}

// removeEnded removes what is left of deleted pods in containerd. The kubelet keeps it for a minute or two, with the images and files that it uses.
func removeEnded(h *hosts.Host) {
	if ids := strings.Fields(h.Coracle("crictl", "pods", "--state", "NotReady", "--quiet")); len(ids) > 0 {
		_, _ = h.TryCoracle(append([]string{"crictl", "rmp"}, ids...)...) // the kubelet may be removing them
	}
}

// manifest returns a file of testdata with ${NAME} replaced.
func manifest(t *testing.T, name string, values ...string) string {
	t.Helper()
	data, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(append(values, "${AGNHOST}", agnhost)...).Replace(string(data))
}

// contains returns an error unless got, the output of what, contains want.
func contains(what, got, want string) error {
	if !strings.Contains(got, want) {
		return fmt.Errorf("%s: %q does not contain %q", what, got, want)
	}
	return nil
}

// expect fails the test unless a command's output contains want within a generous timeout.
func expect(t *testing.T, want string, run func() (string, error)) {
	t.Helper()
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := run()
		if err != nil {
			return err
		}
		return contains("output", out, want)
	})
}
