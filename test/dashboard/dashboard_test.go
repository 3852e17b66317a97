//go:build browser

// Package dashboard plays what people do on the page of coracle dashboard, in a real Chromium against a real cluster. scripts/dashboard-test
// installs what it needs and runs it; the gate has TestWorkloads/dashboard, without a browser.
package dashboard

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

//go:embed testdata/shop.yaml
var shop string

//go:embed testdata/gateway.yaml
var gateway string

// TestDashboard: play.mjs says what it does with the pages of an administrator, a viewer and a screen on the wall. It asks this test,
// line by line, for what only the machine can do.
func TestDashboard(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 2, Images: true, Stopped: true})
	server := c.Servers[0]
	server.LimitDisk(2048) // a backup needs a tenth of the disk free, which this machine may not have
	c.Provision(server)
	for _, h := range c.Hosts() {
		c.Start(h)
	}
	c.AwaitHealthy(time.Now(), time.Minute)
	server.Run("sh", "-ec", `cd /tmp; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 47 -subj /CN=shop.example.org -addext subjectAltName=DNS:shop.example.org,DNS:news.example.org -keyout tls.key -out tls.crt 2>/dev/null`)
	server.Apply(shop)
	server.Kubectl("-n", "shop", "create", "secret", "tls", "shop-tls", "--cert=/tmp/tls.crt", "--key=/tmp/tls.key")
	server.Coracle("gateway-api")
	server.Apply(gateway)
	server.Coracle("etcd", "snapshot", "save", "--name", "before-the-sale")
	viewer(t, server)
	for _, name := range []string{"storefront", "orders"} {
		server.Kubectl("-n", "shop", "rollout", "status", "deployment", name, "--timeout=60s")
	}

	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	server.Run("mkdir", "/tmp/pictures")
	if dir := os.Getenv("CORACLE_TEST_PICTURES"); dir != "" {
		t.Cleanup(func() { _ = exec.Command("cp", "-R", server.Path("/tmp/pictures")+"/.", dir).Run() })
	}
	admin := open(t, server)
	read := open(t, server, "--kubeconfig", "/tmp/viewer.yaml")
	wall, pin := openWall(t, server)
	script := server.Command("node", filepath.Join(here, "play.mjs"), admin, read, wall, "/tmp/pictures", pin)
	script.Env = append(script.Env, "HOME=/tmp")
	script.Stderr = os.Stderr
	asked, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	many := make(chan error, 1)
	for lines := bufio.NewScanner(asked); lines.Scan(); {
		t.Log(lines.Text())
		switch lines.Text() {
		case "please: ten thousand pods":
			go func() { many <- makeMany(t.Context(), server.Client()) }()
		case "please: an agent loses power":
			c.Agents[1].Kill()
		}
	}
	if err := script.Wait(); err != nil {
		t.Fatalf("the play ended with %v", err)
	}
	select {
	case err := <-many:
		if err != nil {
			t.Errorf("making many pods: %v", err)
		}
	default:
	}
}

// makeMany makes 10,000 pods that no node has to run.
func makeMany(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().ServiceAccounts("many").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	var g errgroup.Group
	g.SetLimit(32)
	for i := range 10_000 {
		g.Go(func() error {
			_, err := client.CoreV1().Pods("many").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("one-of-many-%05d", i)},
				Spec: corev1.PodSpec{
					SchedulingGates: []corev1.PodSchedulingGate{{Name: "coracle.test/never"}},
					Containers:      []corev1.Container{{Name: "main", Image: "coracle.test/busybox:1"}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// viewer makes the kubeconfig of a user who may look at the namespace shop, and at nothing else.
func viewer(t *testing.T, h *hosts.Host) {
	token := strings.TrimSpace(h.Kubectl("-n", "shop", "create", "token", "viewer"))
	ca := strings.TrimSpace(h.Kubectl("config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"))
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"viewer","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:6443","certificate-authority-data":%q}}],
"users":[{"name":"u","user":{"token":%q}}],"contexts":[{"name":"viewer","context":{"cluster":"c","user":"u","namespace":"shop"}}]}`, ca, token)
	if err := os.WriteFile(h.Path("/tmp/viewer.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// openWall starts a dashboard for a screen, with a certificate for wall.example.org, and returns its address there and the hash of its public key.
func openWall(t *testing.T, h *hosts.Host) (address, pin string) {
	h.Run("sh", "-ec", `cd /tmp; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 47 -subj /CN=wall -addext subjectAltName=DNS:wall.example.org -keyout wall.key -out wall.crt 2>/dev/null`)
	address = open(t, h, "--listen", "127.0.0.1:8443", "--token-file", "/tmp/wall.token", "--tls-cert-file", "/tmp/wall.crt", "--tls-private-key-file", "/tmp/wall.key")
	address = strings.Replace(address, "#TOKEN", "#"+strings.TrimSpace(h.Run("cat", "/tmp/wall.token")), 1)
	pin = strings.TrimSpace(h.Run("sh", "-ec", "openssl x509 -in /tmp/wall.crt -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64"))
	return strings.Replace(address, "127.0.0.1", "wall.example.org", 1), pin
}

// open starts a dashboard on the host, and returns the address that it prints.
func open(t *testing.T, h *hosts.Host, args ...string) string {
	t.Helper()
	cmd := h.Command(hosts.Bin(t), append([]string{"dashboard"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, cmd) })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address := regexp.MustCompile(`https?://\S+`).FindString(lines.Text()); address != "" && strings.Contains(address, "#") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return address
		}
	}
	t.Fatalf("coracle dashboard %s printed no address", strings.Join(args, " "))
	return ""
}

// stop ends a dashboard as Ctrl+C does.
func stop(t *testing.T, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGINT)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("coracle dashboard did not stop")
		_ = cmd.Process.Kill()
	}
}
