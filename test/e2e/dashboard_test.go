package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	neturl "net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testDashboard: the page of coracle dashboard comes to whoever has its address, and to nobody else; its calls reach the API, with
// watches and a shell over WebSockets. test/dashboard plays it in a browser.
func testDashboard(t *testing.T, h *hosts.Host) {
	d, address := startDashboard(t, h)

	if got := h.Run("sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"); strings.Contains(got, address.Fragment) {
		t.Error("other users can see the secret of the address in the list of processes")
	}
	page := d.call("GET", "/", "")
	if script := regexp.MustCompile(`/assets/[^"]+\.js`).FindString(page.body); script == "" || d.call("GET", script, "").code != http.StatusOK {
		t.Errorf("the page has no script: %s", page.body)
	}
	if got := d.call("GET", "/api/v1/pods", "").code; got != http.StatusUnauthorized {
		t.Errorf("without the secret: %d", got)
	}
	d.login(address)
	if got := d.call("GET", "/api/v1/namespaces/default/pods/client", ""); got.code != http.StatusOK || !strings.Contains(got.body, `"uid"`) {
		t.Errorf("reading a pod: %d %s", got.code, got.body)
	}
	for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/default/services/web/proxy/", "/api/v1/nodes/" + h.Name + "/proxy/pods"} {
		if got := d.call("GET", path, "").code; got != http.StatusForbidden {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, report := range []string{"status", "doctor"} {
		if got := d.call("GET", "/reports/"+report, ""); got.code != http.StatusOK || !json.Valid([]byte(got.body)) {
			t.Errorf("the report %s: %d %s", report, got.code, got.body)
		}
	}

	watch := d.socket("/api/v1/namespaces/default/configmaps?watch=true", "")
	h.Kubectl("create", "configmap", "seen-on-the-dashboard")
	hosts.Eventually(t, 10*time.Second, func() error {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := websocket.JSON.Receive(watch, &event); err != nil || event.Object.Metadata.Name != "seen-on-the-dashboard" {
			return fmt.Errorf("the watch told of %+v: %v", event, err)
		}
		return nil
	})
	shell := d.socket("/api/v1/namespaces/default/pods/client/exec?stdout=true&command=echo&command=heard", "v5.channel.k8s.io")
	hosts.Eventually(t, 10*time.Second, func() error {
		var frame []byte
		if err := websocket.Message.Receive(shell, &frame); err != nil || string(frame) != "\x01heard\n" {
			return fmt.Errorf("the shell wrote %q: %v", frame, err)
		}
		return nil
	})
}

// startDashboard starts the dashboard on a host until the test ends, and returns the address that it prints.
func startDashboard(t *testing.T, h *hosts.Host) (*dashboard, *neturl.URL) {
	t.Helper()
	cmd := h.Command(hosts.Bin(t), "dashboard")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	var printed string
	for lines := bufio.NewScanner(out); printed == "" && lines.Scan(); {
		printed = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	}
	address, err := neturl.Parse(printed)
	if err != nil || address.Fragment == "" {
		t.Fatalf("it printed %q: %v", printed, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return &dashboard{t: t, h: h, origin: "http://" + address.Host, port: address.Port()}, address
}

// dashboard calls the server of the page on a host, as a browser there.
type dashboard struct {
	t            *testing.T
	h            *hosts.Host
	origin, port string
	client       http.Client
}

// login gets the cookie for the secret of the address.
func (d *dashboard) login(address *neturl.URL) {
	d.t.Helper()
	if got := d.call("POST", "/session", `{"secret":"`+address.Fragment+`"}`); got.code != http.StatusNoContent {
		d.t.Fatalf("the secret was answered with %d: %s", got.code, got.body)
	}
}

type pageAnswer struct {
	code int
	body string
}

func (d *dashboard) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return d.h.Dial(ctx, "tcp", "127.0.0.1:"+d.port)
}

func (d *dashboard) call(method, path, body string) pageAnswer {
	d.t.Helper()
	if d.client.Jar == nil {
		d.client.Jar, _ = cookiejar.New(nil)
		d.client.Transport = &http.Transport{DialContext: d.dial}
	}
	r, err := http.NewRequest(method, d.origin+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Origin", d.origin)
	answer, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return pageAnswer{answer.StatusCode, string(data)}
}

func (d *dashboard) socket(path, protocol string) *websocket.Conn {
	d.t.Helper()
	config, err := websocket.NewConfig(strings.Replace(d.origin, "http", "ws", 1)+path, d.origin)
	if err != nil {
		d.t.Fatal(err)
	}
	if protocol != "" {
		config.Protocol = []string{protocol}
	}
	origin, _ := neturl.Parse(d.origin)
	for _, c := range d.client.Jar.Cookies(origin) {
		config.Header.Add("Cookie", c.String())
	}
	conn, err := d.dial(d.t.Context(), "", "")
	if err != nil {
		d.t.Fatal(err)
	}
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		d.t.Fatalf("a WebSocket for %s: %v", path, err)
	}
	d.t.Cleanup(func() { ws.Close() })
	return ws
}
