package coredns

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/confine/confinetest"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/test/freeport"
)

// TestMain lets this executable be the child process.
func TestMain(m *testing.M) {
	if os.Args[0] == Program {
		os.Exit(RunChild(nil))
	}
	os.Exit(m.Run())
}

// startChild starts a child that sees a directory with the file zone, and no API.
func startChild(t *testing.T) *process {
	t.Helper()
	none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no API", http.StatusBadGateway) })
	p, _ := startChildWith(t, none)
	return p
}

// startChildWith starts a child that sees an API, and the returned directory with the file zone.
func startChildWith(t *testing.T, api http.Handler) (*process, string) {
	t.Helper()
	dir := confinetest.Dir(t)
	if err := os.WriteFile(filepath.Join(dir, "zone"), []byte("192.0.2.7 harbour.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(dir, config.Log{Level: "info"}, api)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if p.missing != "" {
		t.Errorf("not confined: %s", p.missing)
	}
	return p, dir
}

// secret is a file that only root can read.
func secret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("hunter2.of.root\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPluginsReadNoFiles: a Corefile's plugins open none of root's files, and no error quotes one.
func TestPluginsReadNoFiles(t *testing.T) {
	t.Setenv("CORACLE_TEST_SECRET", "hunter2") // before the child starts, which would inherit it
	p, path := startChild(t), secret(t)
	for _, directive := range []string{
		"file " + path + " x", "hosts " + path, "import " + path, "import ../../../../../../" + path,
		"forward . tls://127.0.0.1 {\n tls " + path + " " + path + " " + path + "\n}",
		"kubernetes {\n kubeconfig " + path + "\n}", "forward . " + path, "acl {\n {$CORACLE_TEST_SECRET}\n}",
		"kubernetes {\n endpoint https://127.0.0.1:1\n tls " + path + " " + path + " " + path + "\n}",
	} {
		err := p.load(fmt.Appendf(nil, ".:%d {\n bind 127.0.0.1\n %s\n}\n", freeport.Port(t), strings.ReplaceAll(directive, "forward", forwardDirective)))
		t.Logf("%q: %v", directive, err)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error quotes the file: %v", directive, err)
		}
		if err == nil && (strings.HasPrefix(directive, "import") || strings.Contains(directive, "tls")) {
			t.Errorf("%q is accepted", directive)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("\t%d\t%[1]d\t%[1]d\t%[1]d\n", clusterdns.UserID)
	for _, want := range []string{"Uid:" + id, "Gid:" + id, "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
}

// TestProcessLimits: the process that anybody can send queries to takes a bounded number of descriptors, and is ended before its parent when memory is short.
func TestProcessLimits(t *testing.T) {
	p := startChild(t)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.pid))
	want := fmt.Sprintf("Max open files            %-20d %-20[1]d", maxDescriptors)
	if err != nil || !strings.Contains(string(limits), want) {
		t.Errorf("no %q in %s %v", want, limits, err)
	}
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid)); err != nil || string(score) != "500\n" {
		t.Errorf("oom_score_adj is %q, %v", score, err)
	}
}

// TestProcessServes its own files, and its metrics, and ends when its parent lets go of it.
func TestProcessServes(t *testing.T) {
	p, port := startChild(t), freeport.Port(t)
	corefile := fmt.Appendf(nil, ".:%d {\n bind 127.0.0.1\n hosts /zone\n}\n", port)
	if err := p.load(corefile); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, fmt.Sprintf("127.0.0.1:%d", port), "harbour.test."); got != "192.0.2.7" {
		t.Errorf("answer is %s", got)
	}
	families, err := p.gather()
	found := false
	for _, f := range families {
		found = found || f.GetName() == "coredns_panics_total"
	}
	if err != nil || !found {
		t.Errorf("no metrics of CoreDNS: %v", err)
	}
	if err := p.load([]byte("nonsense {")); err == nil || !strings.Contains(err.Error(), "Corefile:1") {
		t.Errorf("error is %v", err)
	}
	p.stop()
	if p.alive() {
		t.Error("it still runs")
	}
	if err := p.load(corefile); err == nil || !strings.Contains(err.Error(), "exit status 0") {
		t.Errorf("loading after the end: %v", err)
	}
}

// TestStopKeepsAPI: a child that is about to end still reaches the API. It would log an error for each watch that ends before.
func TestStopKeepsAPI(t *testing.T) {
	watches := make(chan context.Context, 100)
	p, dir := startChildWith(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		watches <- r.Context()
		<-r.Context().Done()
	}))
	if err := p.load(fmt.Appendf(nil, "a.test:%d {\n bind 127.0.0.1\n %s\n}\n", freeport.Port(t), kubernetesDirective)); err != nil {
		t.Fatal(err)
	}
	watch := <-watches

	// The child does not end while it reads a hosts file.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() {
		loaded <- p.load(fmt.Appendf(nil, "b.test:%d {\n bind 127.0.0.1\n hosts /pipe\n}\n", freeport.Port(t)))
	}()
	reading, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the child
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		p.stop()
		close(stopped)
	}()
	if err := <-loaded; err == nil {
		t.Error("the load was not given up")
	}
	if watch.Err() != nil || !p.alive() {
		t.Errorf("the watch: %v, the child lives: %t", watch.Err(), p.alive())
	}
	reading.Close()
	<-stopped
	<-watch.Done()
	if !strings.Contains(p.how, "exit status 0") {
		t.Errorf("it ended with %s", p.how)
	}
}

// TestProcessIsKilled: the parent notices, and a request in flight fails.
func TestProcessIsKilled(t *testing.T) {
	p := startChild(t)
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.end():
	case <-time.After(time.Minute):
		t.Fatal("its end is not noticed")
	}
	if err := p.load(nil); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error is %v", err)
	}
}

// TestHungChild: a child that is stopped is noticed and killed, and one that is busy is not.
func TestHungChild(t *testing.T) {
	p := startChild(t)
	if p.hangs(t.Context(), time.Minute) {
		t.Error("a child that works is taken for hung")
	}
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for stat := ""; !strings.Contains(stat, ") T "); {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if stat = string(text); err != nil {
			t.Fatal(err)
		}
	}
	if !p.hangs(t.Context(), 100*time.Millisecond) {
		t.Error("a child that is stopped is not taken for hung")
	}
	p.kill()
	<-p.ended
	if p.hangs(t.Context(), time.Minute) {
		t.Error("a child that has ended is taken for hung")
	}
}
