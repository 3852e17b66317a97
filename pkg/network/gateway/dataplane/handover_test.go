package dataplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/listening"
	"github.com/coracle-dev/coracle/test/freeport"
)

// writeSite writes the files of a gateway that serves one port with HTTP.
func writeSite(t *testing.T, dir gateway.Dir) (port uint16) {
	t.Helper()
	port = freeport.Port(t)
	config := gateway.Config{
		Listeners: []gateway.Listener{{Name: "web", Port: port, Protocol: gateway.HTTP}},
		Routes:    []gateway.Route{{Listeners: []string{"web"}, Match: gateway.Match{Path: "/"}, Backends: []gateway.Backend{{Endpoints: "web", Weight: 1}}}},
	}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, gateway.Endpoints{"web": {backend(t, "one")}}); err != nil {
		t.Fatal(err)
	}
	return port
}

// awaitSite waits until the port answers, within which the control plane is told nothing.
func awaitSite(t *testing.T, port uint16) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for until := time.Now().Add(20 * time.Second); ; {
		answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			defer answer.Body.Close()
			if body, _ := io.ReadAll(answer.Body); string(body) != "one /" {
				t.Errorf("the gateway answers %q", body)
			}
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
}

// awaitEnd returns how a process ends by itself.
func (c *child) awaitEnd() error {
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("it goes on"), c.Process.Kill())
	}
}

// predecessorAt stands in for a process that serves and has no sockets. It returns its connection to the one that asks for them, and what that one says.
func predecessorAt(t *testing.T, socket string) (asked func() (*net.UnixConn, *bufio.Reader)) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() (*net.UnixConn, *bufio.Reader) {
		t.Helper()
		_ = l.SetDeadline(time.Now().Add(20 * time.Second))
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		said := bufio.NewReader(conn)
		if r, err := http.ReadRequest(said); err != nil || r.URL.Path != handoverPath {
			t.Fatalf("the next process asks for %v, %v", r, err)
		}
		return conn, said
	}
}

// TestSocketNotPut: a process whose front ended when it served, and before its socket was in place, hands over like any other.
func TestSocketNotPut(t *testing.T) {
	dir := childDir(t)
	port := writeSite(t, dir)
	first := launchChild(t, dir)
	defer func() { _ = first.Process.Kill() }()
	awaitSite(t, port)
	next := launchChild(t, dir)
	defer next.end(t)
	if err := first.awaitEnd(); err != nil {
		t.Errorf("the first process, which was replaced: %v", err)
	}
	next.awaitReady(t, dir)
	awaitSite(t, port)
}

// TestManyHandovers: of the processes that were replaced and still have connections, the oldest end when there are too many.
func TestManyHandovers(t *testing.T) {
	dir := childDir(t)
	config := gateway.Config{Listeners: []gateway.Listener{{Name: "tcp", Port: freeport.Port(t), Protocol: gateway.TCP}}, Streams: []gateway.Stream{stream("tcp", "echo")}}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, gateway.Endpoints{"echo": {streamEcho(t)}}); err != nil {
		t.Fatal(err)
	}
	var all []*child
	var conns []net.Conn
	for range gateway.MostProcesses + 2 {
		next := startChild(t, dir)
		defer func() { _ = next.Process.Kill() }()
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", config.Listeners[0].Port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		hello(t, "new connection", conn)
		all, conns = append(all, next), append(conns, conn)
	}
	if err := all[0].awaitEnd(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the oldest process was not killed: %v", err)
	}
	for _, conn := range conns[1:] {
		hello(t, "connection of another process", conn)
	}
}

// TestTwoServe: a process that serves besides the one whose sockets are taken over is ended.
func TestTwoServe(t *testing.T) {
	dir := childDir(t)
	port := writeSite(t, dir)
	besides := launchChild(t, dir)
	defer func() { _ = besides.Process.Kill() }()
	awaitSite(t, port)
	asked := predecessorAt(t, dir.Socket())
	next := launchChild(t, dir)
	defer next.end(t)
	conn, said := asked()
	if err := listening.New().Send(conn); err != nil {
		t.Fatal(err)
	}
	if line, err := said.ReadString('\n'); err != nil || line != servesNow {
		t.Errorf("the next process says %q, %v", line, err)
	}
	fmt.Fprintln(conn, "retired")
	if err := besides.awaitEnd(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process besides was not killed: %v", err)
	}
	next.awaitReady(t, dir)
	awaitSite(t, port)
}

// TestFrontEndsMeanwhile: a process takes nothing over when the front has ended that started it.
func TestFrontEndsMeanwhile(t *testing.T) {
	dir := childDir(t)
	writeSite(t, dir)
	config, err := os.ReadFile(dir.Files().Config())
	if err == nil {
		err = errors.Join(os.Remove(dir.Files().Config()), syscall.Mkfifo(dir.Files().Config(), 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
	asked := predecessorAt(t, dir.Socket())
	path := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(path, gateway.Program))
	}
	if err != nil {
		t.Fatal(err)
	}
	front := exec.Command("/bin/sh", "-c", "unshare -m "+gateway.Program+` "$@" & read line`, "front", gateway.Program, string(dir), logSettings)
	front.Env = []string{"HOME=/", "PATH=" + path + ":/usr/bin:/bin"}
	lines, err := front.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := front.Start(); err != nil {
		t.Fatal(err)
	}
	conn, said := asked()
	peer, err := peerOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(int(peer.Pid), syscall.SIGKILL) }()
	if err := listening.New().Send(conn); err != nil {
		t.Fatal(err)
	}
	reads, err := os.OpenFile(dir.Files().Config(), os.O_WRONLY, 0) // when the process reads it, and is confined
	if err != nil {
		t.Fatal(err)
	}
	lines.Close()
	_ = front.Wait()
	_, err = reads.Write(config)
	if err := errors.Join(err, reads.Close()); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(said); err != nil || len(rest) > 0 {
		t.Errorf("without its front the process goes on, and says %q, %v", rest, err)
	}
}
