package coredns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coracle-dev/coracle/test/freeport"
)

// serve starts a Corefile whose %d is the returned address' port.
func serve(t *testing.T, corefile string) (*server, string, uint16) {
	t.Helper()
	if err := register(nil); err != nil {
		t.Fatal(err)
	}
	port, s := freeport.Port(t), &server{}
	err := s.load(fmt.Appendf(nil, corefile, port))
	for range 20 { // somebody else may take a port as soon as it is free
		if err == nil || !strings.Contains(err.Error(), "in use") {
			break
		}
		port, s = freeport.Port(t), &server{}
		err = s.load(fmt.Appendf(nil, corefile, port))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s, fmt.Sprintf("127.0.0.1:%d", port), port
}

// ask returns the first address in the answer, or the name of its error.
func ask(t *testing.T, address, name string) string {
	t.Helper()
	client := dns.Client{Timeout: 20 * time.Second}
	answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), address)
	if err != nil {
		t.Fatalf("asking for %s: %v", name, err)
	}
	if len(answer.Answer) == 0 {
		return dns.RcodeToString[answer.Rcode]
	}
	return answer.Answer[0].(*dns.A).A.String()
}

func fixed(addr string) string {
	return `.:%d {
		bind 127.0.0.1
		template IN A example.test {
			answer "{{ .Name }} 60 IN A ` + addr + `"
		}
		reload
		health
		coracle_no_upstream
	}`
}

func TestServerLoadsAgainWithoutLosingQueries(t *testing.T) {
	s, address, port := serve(t, fixed("192.0.2.1"))
	if got := ask(t, address, "x.example.test."); got != "192.0.2.1" {
		t.Fatalf("answer is %s", got)
	}
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		client := dns.Client{Timeout: 20 * time.Second}
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, _, err := client.Exchange(new(dns.Msg).SetQuestion("x.example.test.", dns.TypeA), address); err != nil {
				failed <- err
				return
			}
		}
	}()
	for i := range 5 {
		want := fmt.Sprintf("192.0.2.%d", 10+i)
		if err := s.load(fmt.Appendf(nil, fixed(want), port)); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, address, "x.example.test."); got != want {
			t.Fatalf("answer is %s after loading %s", got, want)
		}
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("a query was lost: %v", err)
	}
}

func TestServerKeepsTheOldAfterABadCorefile(t *testing.T) {
	s, address, port := serve(t, fixed("192.0.2.1"))
	for _, tt := range []struct{ corefile, want string }{
		{".:%d {\n bind 127.0.0.1\n nonsense\n}", "Corefile:3 - Error during parsing: Unknown directive 'nonsense'"},
		{".:%d {\n coracle_forward\n}", "Corefile:2"},
		{".:%d {\n bind 127.0.0.1\n template IN A {\n answer \"{{\"\n}\n}", "template"},
		{".:%d {\n", "Corefile:1"},
		{".:%d {\n bind 192.0.2.250\n}", "192.0.2.250"}, // not ours: fails only when it starts
	} {
		err := s.load(fmt.Appendf(nil, tt.corefile, port))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("loading %q: error is %v, want one with %q", tt.corefile, err, tt.want)
		}
		if got := ask(t, address, "x.example.test."); got != "192.0.2.1" {
			t.Errorf("after %q the answer is %s", tt.corefile, got)
		}
	}
}

func TestServerWithoutUpstream(t *testing.T) {
	_, address, _ := serve(t, fixed("192.0.2.1"))
	began := time.Now()
	if got := ask(t, address, "example.com."); got != "SERVFAIL" {
		t.Errorf("answer is %s", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestLoopIsCut(t *testing.T) {
	_, address, _ := serve(t, ".:%[1]d {\n bind 127.0.0.1\n loop\n coracle_forward . 127.0.0.1:%[1]d\n}")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		began := time.Now()
		if got := ask(t, address, "example.com."); got == "SERVFAIL" && time.Since(began) < 200*time.Millisecond {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the loop was not found")
		}
	}
}

// TestLoopTakesFewDescriptors: a loop that no plugin looks for, fed by several clients, does not take the process's descriptors.
func TestLoopTakesFewDescriptors(t *testing.T) {
	before := descriptors(t) // an earlier test's may be about to be closed
	_, address, _ := serve(t, ".:%[1]d {\n bind 127.0.0.1\n coracle_forward . 127.0.0.1:%[1]d\n}")
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			client := dns.Client{Timeout: 20 * time.Second}
			answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(fmt.Sprintf("%d.example.com.", i), dns.TypeA), address)
			if err != nil || answer.Rcode != dns.RcodeServerFailure {
				t.Errorf("answer is %v, error %v", answer, err)
			}
		})
	}
	clients.Wait()
	// The connections of queries that were in flight are kept for some seconds.
	if taken := descriptors(t) - before; taken > maxForwarded+100 {
		t.Errorf("it took %d descriptors, more than about %d", taken, maxForwarded)
	}
}

// descriptors counts the open file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestUpstreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "search x\nnameserver 10.42.0.1\nnameserver 127.0.0.53\nnameserver 10.43.0.10\nnameserver 127.0.0.53\n" +
		"nameserver fe80::1%eth0\nnameserver nonsense\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := upstreams(path, []netip.Addr{netip.MustParseAddr("10.42.0.1"), netip.MustParseAddr("10.43.0.10")})
	if want := "127.0.0.53 fe80::1%eth0"; strings.Join(got, " ") != want {
		t.Errorf("upstreams are %q, want %q", got, want)
	}
	if got := upstreams(path+".missing", nil); len(got) != 0 {
		t.Errorf("upstreams of no file are %q", got)
	}
}
