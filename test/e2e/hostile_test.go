package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	endian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/test/hosts"
)

// dial connects from the agent's host to the API.
func (a asker) dial(t *testing.T) *tls.Conn {
	t.Helper()
	plain, err := a.b.agent.Dial(t.Context(), "tcp", net.JoinHostPort(a.b.server.IP.String(), "6443"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if a.pair != nil {
		config.Certificates = []tls.Certificate{*a.pair}
	}
	conn := tls.Client(plain, config)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// privateMB is the private memory of the server's control plane in MB.
func (b *badJoins) privateMB(t *testing.T) float64 {
	t.Helper()
	pid, err := b.Running(b.server).ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return float64(kb) / 1e3
}

// tunnels opens tunnels as the agent and sends what nobody asked for. Whatever a node sends, it costs the server little.
func (b *badJoins) tunnels(t *testing.T) {
	who := b.as(t, "node")
	open := func() (*tls.Conn, *bufio.Reader) {
		conn := who.dial(t)
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: coracle-tunnel\r\n\r\n", join.PathTunnel); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		if response, err := http.ReadResponse(reader, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v %v", response, err)
		}
		return conn, reader
	}
	before := b.privateMB(t)
	sent := 0
	for range 2 {
		conn, _ := open()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		data := make([]byte, 12+250<<10) // a stream with as much data as the window of a new one
		data[3] = 1                      // SYN
		endian.BigEndian.PutUint32(data[8:], 250<<10)
		for id := uint32(2); id < 2*250; id += 2 {
			endian.BigEndian.PutUint32(data[4:], id)
			n, err := conn.Write(data)
			sent += n
			if err != nil {
				break
			}
		}
	}
	after := b.privateMB(t)
	t.Logf("the control plane has %.0f MB after %.1f MB in streams that nobody reads, %.0f MB before", after, float64(sent)/1e6, before)
	if after-before > 40 { // the heap's garbage is most of it
		t.Errorf("%.0f MB more", after-before)
	}

	// Of three more, which also take the place of the agent's own, the first is closed.
	_, oldest := open()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, oldest)
		ended <- err
	}()
	open()
	open()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("three tunnels of a node are kept")
	}
}

// guesses tries wrong tokens as fast as the server answers, while machines with a right one join from the same address.
func (b *badJoins) guesses(t *testing.T) {
	who := asker{b: b, bearer: bearer(t, b.agentToken)}
	joined := func(prefix string) time.Duration {
		began := time.Now()
		var joins sync.WaitGroup
		for i := range 20 {
			name := fmt.Sprintf("%s-%d", prefix, i)
			m := newMachine(t, name, "system:coracle:node:"+name, "system:coracle:nodes")
			joins.Go(func() {
				if code, text := who.ask(t, http.MethodPost, join.PathAgent, m.request()); code != http.StatusOK {
					t.Errorf("%s cannot join: %d %s", name, code, text)
				}
			})
		}
		joins.Wait()
		return time.Since(began)
	}
	alone := joined("alone") // on this machine, which may be busy
	period := max(3*time.Second, 3*alone)
	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	lines := strings.Count(b.Running(b.server).Log(), "\n")
	var answered atomic.Int32
	var guessers sync.WaitGroup
	for range 8 {
		conn := asker{b: b}.dial(t)
		_ = conn.SetDeadline(time.Now().Add(period))
		guessers.Go(func() {
			reader := bufio.NewReader(conn)
			for ctx.Err() == nil {
				if _, err := fmt.Fprintf(conn, "GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abcdef.0123456789abcdef\r\n\r\n"); err != nil {
					return
				}
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				if response.StatusCode == http.StatusUnauthorized {
					answered.Add(1)
				}
			}
		})
	}
	beside := joined("guest")
	if beside >= period {
		t.Errorf("20 machines join in %s beside guessers, of whom all that is answered comes within %s, and in %s alone", beside, period, alone)
	}
	guessers.Wait()
	if n := answered.Load(); n == 0 || float64(n) > 5*period.Seconds() {
		t.Errorf("%d guesses were answered in %s", n, period)
	}
	log := strings.Split(b.Running(b.server).Log(), "\n")[lines:]
	log = slices.DeleteFunc(log, func(l string) bool { return !strings.Contains(l, "token") || strings.Contains(l, "accepted node") })
	if len(log) > 2 {
		t.Errorf("%d lines are logged: %q", len(log), log[:2])
	}
	t.Logf("%d guesses were answered in %s; 20 machines join in %s beside them, in %s alone", answered.Load(), period, beside, alone)
}

// load are requests that no honest machine sends, each with the number of times that the test sends it at once.
func (b *badJoins) load(t *testing.T) map[string]struct {
	count int
	send  func(*testing.T) error
} {
	agent, server, node := asker{b: b, bearer: bearer(t, b.agentToken)}, asker{b: b, bearer: bearer(t, b.serverToken)}, b.as(t, "node")
	member := asker{b: b}
	pair, err := tls.LoadX509KeyPair(b.server.Data("server/pki/coracle.crt"), b.server.Data("server/pki/coracle.key"))
	if err != nil {
		t.Fatal(err)
	}
	member.pair = &pair
	endpoints := []struct {
		who  asker
		path string
	}{{agent, join.PathAgent}, {server, join.PathServer}, {node, join.PathAgent}, {member, join.PathMembers}}
	guest := newMachine(t, "replayed", "system:coracle:node:replayed", "system:coracle:nodes")
	request, err := json.Marshal(guest.request())
	if err != nil {
		t.Fatal(err)
	}
	begin := func(length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", join.PathAgent, agent.bearer, length)
	}
	// byByte sends a beginning at once and then one byte a second. The server answers only those requests that it began to read.
	byByte := func(first, rest string) error {
		conn := agent.dial(t)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(7 * time.Second))
		go func() {
			_, err := io.WriteString(conn, first)
			for i := 0; i < len(rest) && err == nil; i++ {
				_, err = io.WriteString(conn, rest[i:i+1])
				time.Sleep(time.Second)
			}
		}()
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && response.StatusCode < 400 {
			return fmt.Errorf("a request of one byte a second is answered %d", response.StatusCode)
		}
		return nil
	}
	return map[string]struct {
		count int
		send  func(*testing.T) error
	}{
		"malformed, truncated and oversized": {4, func(t *testing.T) error {
			for _, e := range endpoints {
				for _, body := range [][]byte{
					[]byte(`{"node": [`), bytes.Repeat([]byte("["), 60<<10), request[:len(request)/2], append([]byte(`{"node": "`), bytes.Repeat([]byte("a"), 10<<20)...),
				} {
					if code, err := e.who.post(t, e.path, body); err == nil && code/100 != 4 {
						return fmt.Errorf("%s is answered %d to %.20q", e.path, code, body)
					}
				}
			}
			conn := agent.dial(t)
			_, err := io.WriteString(conn, begin(len(request))+string(request[:len(request)/2]))
			return errors.Join(err, conn.Close())
		}},
		"slow": {20, func(*testing.T) error {
			var headers sync.WaitGroup
			for range 4 {
				headers.Go(func() { _ = byByte("", begin(10)) })
			}
			defer headers.Wait()
			return byByte(begin(1000), strings.Repeat(" ", 1000))
		}},
		"small for what they take": {4, func(t *testing.T) error {
			aliases := "kind: SelfSubjectAccessReview\napiVersion: authorization.k8s.io/v1\nspec: [&a " + strings.Repeat("A", 20_000) + strings.Repeat(", *a", 20_000) + "]\n"
			key := fmt.Sprintf(`{"kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1", "metadata": {"name": "long"}, "spec": {"request": "%s",
				"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"]}}`, bytes.Repeat([]byte("AAAA"), 1<<19))
			for _, r := range []struct {
				format, path, body string
				want               int
			}{
				{"application/yaml", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", aliases, http.StatusBadRequest},
				{"application/json", "/apis/certificates.k8s.io/v1/certificatesigningrequests", key, http.StatusForbidden},
			} {
				sender := node
				sender.format = r.format
				if code, err := sender.post(t, r.path, []byte(r.body)); err != nil || code != r.want {
					return fmt.Errorf("%s: the answer is %d, %w", r.path, code, err)
				}
			}
			return nil
		}},
		"replayed, many at once": {joinsAtOnce(), func(t *testing.T) error {
			code, err := agent.post(t, join.PathAgent, request)
			if err == nil && code != http.StatusOK && code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
				return fmt.Errorf("the answer is %d", code)
			}
			return nil
		}},
	}
}

// joinsAtOnce is how many machines join at once: CORACLE_TEST_JOINS, or few enough for every run of the tests.
func joinsAtOnce() int {
	if n, err := strconv.Atoi(os.Getenv("CORACLE_TEST_JOINS")); err == nil {
		return n
	}
	return 300
}

// post sends a body and returns the answer's status. The server may end the connection before the body is sent.
func (a asker) post(t *testing.T, path string, body []byte) (int, error) {
	conn, err := a.b.agent.Dial(t.Context(), "tcp", net.JoinHostPort(a.b.server.IP.String(), "6443"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if a.pair != nil {
		config.Certificates = []tls.Certificate{*a.pair}
	}
	secure := tls.Client(conn, config)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	header := ""
	if a.bearer != "" {
		header = "Authorization: Bearer " + a.bearer + "\r\n"
	}
	if a.format != "" {
		header += "Content-Type: " + a.format + "\r\n"
	}
	if _, err := fmt.Fprintf(secure, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", path, header, len(body)); err != nil {
		return 0, err
	}
	go func() { _, _ = secure.Write(body) }()
	response, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}

// usedMB is the memory that the server's control plane uses in MB: of live objects at the last collection of garbage, and of stacks.
func usedMB(t *testing.T, client kubernetes.Interface) (sum float64) {
	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(metrics)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_gc_heap_live_bytes" || name == "go_memory_classes_heap_stacks_bytes" {
			bytes, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Error(err)
			}
			sum += bytes / 1e6
		}
	}
	return sum
}

// probe is the 99th percentile of an administrator's requests, at least 50.
func probe(t *testing.T, client kubernetes.Interface, during <-chan struct{}) time.Duration {
	var took []time.Duration
	for len(took) < 50 || during != nil {
		began := time.Now()
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		took = append(took, time.Since(began))
		select {
		case <-during:
			during = nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// badInput sends requests that no honest machine sends: they are refused, cost little memory, and slow neither other clients down nor machines that
// join with another token.
func (b *badJoins) badInput(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	other := asker{b: b, bearer: bearer(t, b.token("--role=agent"))}
	guests := 0
	for name, l := range b.load(t) {
		t.Run(name, func(t *testing.T) {
			quiet, resident, used := probe(t, client, nil), b.privateMB(t), usedMB(t, client)
			done := make(chan struct{})
			var senders, watchers sync.WaitGroup
			for range l.count {
				senders.Go(func() {
					if err := l.send(t); err != nil {
						t.Error(err)
					}
				})
			}
			go func() {
				senders.Wait()
				close(done)
			}()
			mostResident, mostUsed := resident, used
			watchers.Go(func() {
				for {
					mostResident, mostUsed = max(mostResident, b.privateMB(t)), max(mostUsed, usedMB(t, client))
					select {
					case <-done:
						return
					case <-time.After(500 * time.Millisecond):
					}
				}
			})
			var joined time.Duration
			guests++
			watchers.Go(func() {
				guest := fmt.Sprintf("beside-%d", guests)
				m, began := newMachine(t, guest, "system:coracle:node:"+guest, "system:coracle:nodes"), time.Now()
				request, err := json.Marshal(m.request())
				if err != nil {
					t.Error(err)
				}
				for { // as machines do
					code, err := other.post(t, join.PathAgent, request)
					if code == http.StatusOK {
						break
					}
					if err == nil && code != http.StatusTooManyRequests || time.Since(began) > time.Minute {
						t.Errorf("joining with another token meanwhile: %d, %v", code, err)
						break
					}
				}
				if joined = time.Since(began); joined > 15*time.Second {
					t.Errorf("joining with another token meanwhile takes %s", joined)
				}
			})
			busy := probe(t, client, done)
			watchers.Wait()
			t.Logf("99 of 100 requests of others take %s, %s without the load, and joining takes %s; the control plane uses at most %.0f MB, %.0f MB before, and has %.0f MB, %.0f MB before",
				busy.Round(time.Millisecond), quiet.Round(time.Millisecond), joined.Round(time.Millisecond), mostUsed, used, mostResident, resident)
			if mostUsed-used > 40 || mostResident-resident > 150 { // what is resident is garbage, too
				t.Errorf("%.0f MB more are used, and %.0f MB more are resident", mostUsed-used, mostResident-resident)
			}
			if busy > 2*quiet+3*time.Second { // the senders and other tests use the same two cores; a server that stands still takes longer
				t.Errorf("other clients wait for %s", busy)
			}
		})
	}
}
