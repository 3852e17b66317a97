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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/confine/confinetest"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// TestMain lets this executable be the gateway's process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == gateway.Program {
		os.Exit(RunChild(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestChild: what the process gives up it does not need for streams, and they go on when another process takes over.
func TestChild(t *testing.T) {
	dir := childDir(t)
	port := freeport.Port(t)
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
			{Name: "tcp", Port: freeport.Port(t), Protocol: gateway.TCP},
		},
		Streams: []gateway.Stream{stream("pass", "behind"), stream("ended", "echo"), stream("udp", "packets"), stream("tcp", "echo")},
		Routes:  []gateway.Route{{Listeners: []string{"web"}, Match: gateway.Match{Path: "/"}, Backends: []gateway.Backend{{Endpoints: "web", Weight: 1}}}},
	}
	endpoints := gateway.Endpoints{"behind": {behind.Listener.Addr().String()}, "echo": {streamEcho(t)}, "packets": {packetEcho(t)}, "web": {backend(t, "one")}}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, endpoints); err != nil {
		t.Fatal(err)
	}
	first := startChild(t, dir)
	defer first.end(t)
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
	open := map[string]net.Conn{}
	for name, dial := range dials {
		conn, err := dial()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer conn.Close()
		open[name] = conn
		hello(t, name, conn)
	}
	next := startChild(t, dir) // to which the first one hands its sockets
	defer next.end(t)
	for name, conn := range open {
		hello(t, name+", over a restart", conn)
		if conn, err := dials[name](); err != nil {
			t.Errorf("%s, after a restart: %v", name, err)
		} else {
			hello(t, name+", after a restart", conn)
			conn.Close()
		}
	}
}

// TestChildWithRoot: a process that cannot change its root directory, as in some containers, serves all the same.
func TestChildWithRoot(t *testing.T) {
	dir := childDir(t)
	port := writeSite(t, dir)
	c := launchChildIn(t, dir, 0)
	c.awaitReady(t, dir)
	awaitSite(t, port)
	_ = c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil || !strings.Contains(c.log.String(), "changing the root directory") {
		t.Errorf("the process: %v\n%s", err, c.log.Bytes())
	}
}

// childDir returns the directory of a process that a test starts.
func childDir(t *testing.T) gateway.Dir {
	t.Helper()
	dir := gateway.Dir(filepath.Join(confinetest.Dir(t), "gateway"))
	if err := dir.Prepare(0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// child is a gateway's process.
type child struct {
	*exec.Cmd
	log bytes.Buffer
}

// launchChild starts a process as the front does.
func launchChild(t *testing.T, dir gateway.Dir) *child {
	t.Helper()
	return launchChildIn(t, dir, syscall.CLONE_NEWNS)
}

// launchChildIn starts a process in new namespaces.
func launchChildIn(t *testing.T, dir gateway.Dir, namespaces uintptr) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("/proc/self/exe", gateway.Program, string(dir), logSettings)}
	c.Stdout, c.Stderr = &c.log, &c.log
	c.Env = append(os.Environ(), "HOME=/")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

const logSettings = `{"level": "info", "format": "text"}`

// startChild starts a process, and returns when it serves.
func startChild(t *testing.T, dir gateway.Dir) *child {
	t.Helper()
	c := launchChild(t, dir)
	c.awaitReady(t, dir)
	return c
}

// awaitReady puts the socket in place as the front does, and returns when the process serves.
func (c *child) awaitReady(t *testing.T, dir gateway.Dir) {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	for !answers(dir.NextSocket()) { // it has taken over the sockets, and serves
		if time.Now().After(until) {
			c.end(t)
			t.Fatal("the process does not listen")
		}
		<-time.After(time.Millisecond)
	}
	if _, err := dir.PutSocket(); err != nil {
		t.Error(err)
	}
	if applied, err := dir.Apply(t.Context()); err != nil || len(applied.Refused) > 0 {
		t.Errorf("%v, %v", applied, err)
	}
}

// answers reports whether a process answers on a socket.
func answers(socket string) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	answer, err := client.Get("http://gateway" + gateway.AlivePath)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return true
}

// end ends the process. It has said nothing if it could give up all that it need not have, and nothing failed.
func (c *child) end(t *testing.T) {
	t.Helper()
	_ = c.Process.Signal(syscall.SIGTERM)
	err := c.Wait()
	withCgo := bytes.Contains(c.log.Bytes(), []byte("keeping capabilities: operation not supported")) // as for the race detector: then it can give up no privilege
	if err != nil || c.log.Len() > 0 && !withCgo {
		t.Errorf("the process: %v\n%s", err, c.log.Bytes())
	}
}

// hello says hello to an echo.
func hello(t *testing.T, name string, conn net.Conn) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%s: %q, %v", name, got, err)
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
