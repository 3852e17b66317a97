package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// transcript returns the commands below a heading of a page, one text for each block.
func transcript(t *testing.T, page, heading string) (blocks []string) {
	t.Helper()
	data, err := os.ReadFile(source(t, page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// newcomer types the commands of the documentation into a shell of a host, in a copy of this repository.
type newcomer struct {
	*hosts.Host
	t *testing.T
}

func (n newcomer) types(commands string) string {
	n.t.Helper()
	commands = strings.ReplaceAll(commands, "build/test-images", filepath.Dir(hosts.Images(n.t)[0]))
	began := time.Now()
	out, err := n.Command("env", "-C", source(n.t, "."), "PATH=/usr/local/bin:"+os.Getenv("PATH"), "sh", "-eu", "-c", commands).CombinedOutput()
	n.t.Logf("%s\n%sThat took %.1f s.", commands, out, time.Since(began).Seconds())
	if err != nil {
		n.t.Fatalf("%v", err)
	}
	return string(out)
}

// TestNewcomersWebApp runs the commands of docs/addons.md on new nodes that reach no registry: a chart with a volume, a
// policy and a LoadBalancer Service is installed, works, and is removed.
func TestNewcomersWebApp(t *testing.T) {
	t.Parallel()
	blocks := transcript(t, "docs/addons.md", "A web app from a chart")
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of commands, not the 4 that this test knows", len(blocks))
	}
	hosts.Bin(t)
	t.Run("on a network", func(t *testing.T) {
		slots.Take(t)
		wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
		n := newcomer{hosts.New(t, wire, "solo", hosts.Options{}), t}
		n.play(blocks, hosts.New(t, wire, "outside", hosts.Options{}))
	})
	t.Run("on loopback only", func(t *testing.T) {
		slots.Take(t)
		n := newcomer{hosts.New(t, nil, "lonely", hosts.Options{}), t}
		n.play(blocks, n.Host)
	})
}

// play runs the blocks and checks their effect, also from outside.
func (n newcomer) play(blocks []string, outside *hosts.Host) {
	t := n.t
	n.Run("sh", "-c", "mkdir -p /usr/local/bin && ln -sf "+hosts.Bin(t)+" /usr/local/bin/coracle && ln -sf coracle /usr/local/bin/kubectl")
	n.Start()
	waitReady(t, n.Host)
	if out := n.Kubectl("get", "pods", "-A", "-o", "name"); out != "" {
		t.Errorf("a fresh cluster has pods: %s", out)
	}

	n.types(blocks[0])
	address := n.Kubectl("-n", "web", "get", "service", "webapp", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	url := "http://" + address + "/cgi-bin/notes"
	folder := n.volume()

	if out := n.types(blocks[1]); strings.Count(out, "milk and bread\n") != 2 {
		t.Errorf("the note is not there before and after the pod is another: %s", out)
	}
	if got := n.Run("cat", folder+"/notes"); got != "milk and bread\n" {
		t.Errorf("%s has the notes %q", folder, got)
	}
	expect(t, "milk and bread", func() (string, error) { return outside.Get(url) })

	out := n.types(blocks[2])
	if !strings.Contains(out, "milk and bread") || !strings.Contains(out, "no route to host") || !strings.Contains(out, "the stranger is refused") {
		t.Errorf("the policy is not in force: %s", out)
	}
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := n.TryCoracle("kubectl", "-n", "web", "top", "pods", "--no-headers")
		if err != nil {
			return err
		}
		return contains("kubectl top pods", out, "webapp-")
	})

	n.types(blocks[3])
	n.nothingIsLeft(folder)
	if out, err := outside.Get(url); err == nil {
		t.Errorf("it still answers: %s", out)
	}
}

// volume is the directory of the only volume, which must be below coracle's data directory.
func (n newcomer) volume() string {
	n.t.Helper()
	folder := n.Kubectl("get", "pv", "-o", "jsonpath={.items[*].spec.local.path}")
	if !strings.HasPrefix(folder, "/var/lib/coracle/storage/") || strings.Contains(folder, " ") {
		n.t.Fatalf("the volumes are %q, not one below /var/lib/coracle/storage", folder)
	}
	return folder
}

// nothingIsLeft waits until objects and files of the release are removed.
func (n newcomer) nothingIsLeft(folder string) {
	n.t.Helper()
	hosts.Eventually(n.t, 2*time.Minute, func() error {
		left := n.Kubectl("get", "pods,pvc,pv,networkpolicies,helmcharts", "-A", "-o", "name") +
			n.Kubectl("get", "secrets", "-A", "-l", "owner=helm", "-o", "name")
		if left != "" {
			return fmt.Errorf("there are %q", left)
		}
		if _, err := os.Stat(n.Path(folder)); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there: %v", folder, err)
		}
		return nil
	})
}
