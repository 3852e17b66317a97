package dataplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestMain lets this executable be the gateway's process.
func TestMain(m *testing.M) {
	if os.Args[0] == gateway.Program {
		os.Exit(RunChild(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// TestChild: what the process gives up it does not need for streams.
func TestChild(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	for dir := root; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := gateway.Dir(filepath.Join(root, "gateway"))
	if err := dir.Prepare(0); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	own := certificate(t, "Secret a/own", "ended.test")
	behind := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "behind "+r.TLS.ServerName) }))
	defer behind.Close()
	config := gateway.Config{
		Certificates: []gateway.Certificate{own},
		Listeners: []gateway.Listener{
			{Name: "web", Port: port, Protocol: gateway.HTTPS, Certificates: map[string][]string{"": {own.Source}}},
			{Name: "pass", Port: port, Protocol: gateway.Passthrough, Host: "pass.test"},
			{Name: "ended", Port: port, Protocol: gateway.TLS, Host: "ended.test", Certificates: map[string][]string{"": {own.Source}}},
			{Name: "udp", Port: port, Protocol: gateway.UDP},
			{Name: "tcp", Port: freePort(t), Protocol: gateway.TCP},
		},
		Streams: []gateway.Stream{stream("pass", "behind"), stream("ended", "echo"), stream("udp", "packets"), stream("tcp", "echo")},
		Routes:  []gateway.Route{{Listeners: []string{"web"}, Match: gateway.Match{Path: "/"}, Backends: []gateway.Backend{{Endpoints: "web", Weight: 1}}}},
	}
	endpoints := gateway.Endpoints{"behind": {behind.Listener.Addr().String()}, "echo": {streamEcho(t)}, "packets": {packetEcho(t)}, "web": {backend(t, "one")}}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, endpoints); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	child := exec.Command("/proc/self/exe", string(dir), `{"level": "info", "format": "text"}`)
	child.Args[0], child.Stdout, child.Stderr = gateway.Program, &log, &log
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // as the front starts it
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Signal(syscall.SIGTERM)
		if err := child.Wait(); err != nil || log.Len() > 0 { // it tells what it could not give up
			t.Errorf("the process: %v\n%s", err, log.Bytes())
		}
	}()
	until := time.Now().Add(20 * time.Second)
	for applied, err := dir.Apply(t.Context()); ; applied, err = dir.Apply(t.Context()) {
		if err == nil && len(applied.Refused) > 0 {
			t.Fatal(applied.Refused)
		}
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	for host, want := range map[string]string{"pass.test": "behind pass.test", "web.test": "one /"} {
		if got := secureGet(t, at, host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	dials := map[string]func() (net.Conn, error){
		"TLS": func() (net.Conn, error) {
			return tls.Dial("tcp", at, &tls.Config{ServerName: "ended.test", InsecureSkipVerify: true})
		},
		"UDP": func() (net.Conn, error) { return net.Dial("udp", at) },
		"TCP": func() (net.Conn, error) {
			return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", config.Listeners[4].Port))
		},
	}
	for name, dial := range dials {
		conn, err := dial()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		conn.Close()
	}
}

func stream(listener, to string) gateway.Stream {
	return gateway.Stream{Listeners: []string{listener}, Backends: []gateway.Backend{{Endpoints: to, Weight: 1}}}
}

// secureGet returns the answer to a request by HTTPS for a host at an address.
func secureGet(t *testing.T, address, host string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	answer, err := client.Get("https://" + host + "/")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// packetEcho answers datagrams with what they say.
func packetEcho(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}
