package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// apiTimeout is the time limit of one request.
const apiTimeout = 3 * time.Second

// connect makes a client that connects through the balancer, so that it reaches any server that works. It has the rights of
// the administrator on a server, and of the node on an agent.
func (d *Doctor) connect() access {
	file := d.Config.Dirs.NodeConfig("node.kubeconfig")
	if d.Config.Role == config.Server {
		file = d.Config.Dirs.ServerConfig("admin.kubeconfig")
	}
	return d.connectAs(file, "https://"+d.Config.Node.Balancer().String())
}

// connectAs makes a client with the user of a kubeconfig file and another address.
func (d *Doctor) connectAs(kubeconfig, server string) access {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return access{err: fmt.Errorf("reading %s: %w", kubeconfig, err)}
	}
	cfg.Host, cfg.Timeout, cfg.QPS = server, apiTimeout, -1
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // all addresses are inside the cluster
	client, err := kubernetes.NewForConfig(cfg)
	return access{client, err}
}

func (d *Doctor) apiAnswers(ctx context.Context) []check.Verdict {
	const fix = "see check servers for the server at fault; on a server also check etcd and check components"
	api := d.api()
	if api.err != nil {
		return check.Failf("restart coracle, which writes the file again", "the API cannot be reached: %v", api.err)
	}
	began := time.Now()
	body, err := api.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
	took := time.Since(began).Round(time.Millisecond)
	switch {
	case err != nil && len(body) > 0:
		return check.Failf(fix, "the API is not ready: %s", failing(string(body)))
	case err != nil:
		return check.Failf(fix, "the API does not answer at %s: %v", d.Config.Node.Balancer(), short(err))
	case took > time.Second:
		return check.Warnf("check disk-latency and check etcd, and the load of the machine", "the API took %s to answer", took)
	}
	return check.Okf("%s is ready and answers in %s", d.Config.Node.Balancer(), took)
}

// failing returns the failing checks in an answer of /readyz, or the whole answer if there are none.
func failing(body string) string {
	var bad []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			bad = append(bad, name)
		}
	}
	if bad == nil {
		return strings.Join(strings.Fields(body), " ")
	}
	return strings.Join(bad, ", ")
}

// short returns the end of an error, which is the reason; the part before it repeats the request.
func short(err error) string {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	if i := strings.LastIndex(text, "\": "); i >= 0 && strings.Contains(text, "http") {
		return text[i+3:]
	}
	return text
}

func (d *Doctor) listNodes() ([]corev1.Node, error) {
	api := d.api()
	if api.err != nil {
		return nil, errNoAPI
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	list, err := api.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, errNoAPI
	}
	return list.Items, nil
}

// answer is the answer of a server, or its error.
type answer struct {
	tcpbalancer.Server
	err  error
	skew []check.Verdict
}

// askServers asks all known servers for /readyz.
func (d *Doctor) askServers() []answer {
	var known []tcpbalancer.Server
	if !d.detail(state.BalancerDetail, &known) {
		for _, address := range d.Config.Join.Servers {
			known = append(known, tcpbalancer.Server{Address: address})
		}
	}
	known = slices.DeleteFunc(known, func(s tcpbalancer.Server) bool { return s.Fallback && s.Connections == 0 })
	answers := make([]answer, len(known))
	atOnce(len(known), len(known), func(i int) { answers[i] = d.askServer(known[i]) })
	return answers
}

func (d *Doctor) askServer(s tcpbalancer.Server) (a answer) {
	a.Server = s
	address := s.Address
	if s.Own {
		address = d.Config.API.Local().String()
	}
	config, err := d.tls()
	if err != nil {
		a.err = err
		return a
	}
	client := &http.Client{Timeout: apiTimeout, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	began := time.Now()
	response, err := client.Get("https://" + address + "/readyz?verbose")
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<14)) // the status suffices
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		a.skew = check.JudgeSkew(s.Address, date, began, time.Now())
	}
	if response.StatusCode != http.StatusOK {
		a.err = fmt.Errorf("it answers %s: %s", response.Status, failing(string(body)))
	}
	return a
}

// tls returns the TLS configuration with which this node authenticates itself and servers. It expects the name 127.0.0.1,
// because every server's certificate is valid for it, and perhaps not for the address by which the server is reached.
func (d *Doctor) tls() (*tls.Config, error) {
	roots, err := pool(d.Config.Dirs.NodeCA())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	dir := d.Config.Dirs.NodePKI()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.crt"), filepath.Join(dir, "node.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the node's certificate: %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}, nil
}

func (d *Doctor) everyServer(context.Context) []check.Verdict {
	var out []check.Verdict
	var good []string
	for _, a := range d.servers() {
		if a.err == nil {
			good = append(good, a.Address)
			continue
		}
		fix := "run coracle doctor there, and check for a firewall between: nc -vz " + strings.Replace(a.Address, ":", " ", 1)
		if a.Own {
			fix = "it is this machine's: check processes, check components and check etcd"
		}
		out = append(out, check.Failf(fix, "server %s: %s", a.Address, short(a.err))...)
	}
	if len(good)+len(out) == 0 {
		return check.Failf("see docs/joining.md", "this machine knows no server")
	}
	return check.Else(out, check.Okf("%s", strings.Join(good, ", ")))
}

func (d *Doctor) clockSkew(context.Context) []check.Verdict {
	var out []check.Verdict
	asked := 0
	for _, a := range d.servers() {
		if a.Own || len(a.skew) == 0 {
			continue
		}
		asked++
		if a.skew[0].Result != check.OK {
			out = append(out, a.skew...)
		}
	}
	if asked == 0 {
		return check.Skipf("no other server answers")
	}
	return check.Else(out, check.Okf("%d other servers agree with this clock", asked))
}

func (d *Doctor) tunnels(context.Context) []check.Verdict {
	var all []state.Tunnel
	if !d.detail(state.TunnelsDetail, &all) || len(all) == 0 {
		if d.Config.Role == config.Agent {
			return check.Failf("see check servers for the answers of servers", "this node has no tunnel to any server: logs, exec and webhooks need one where servers cannot dial nodes")
		}
		return check.Okf("none is needed: this is the only server")
	}
	return judgeTunnels(all)
}

func judgeTunnels(all []state.Tunnel) (out []check.Verdict) {
	var good []string
	for _, t := range all {
		if t.Error == "" {
			good = append(good, t.Server)
			continue
		}
		out = append(out, check.Failf("see check servers for its answer; coracle keeps trying", "no tunnel to server %s: %s", t.Server, t.Error)...)
	}
	return check.Else(out, check.Okf("to %s", strings.Join(good, ", ")))
}

// manyNodes is the number of nodes that are asked at the same time.
const manyNodes = 16

// atOnce calls do with 0 to n-1, at most limit of them in parallel.
func atOnce(limit, n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait() // there are no errors
}

// nodeAccess asks every kubelet through this machine's own server, which connects directly or through the node's tunnel.
func (d *Doctor) nodeAccess(ctx context.Context) []check.Verdict {
	nodes, err := d.nodes()
	own := d.connectAs(d.Config.Dirs.ServerConfig("admin.kubeconfig"), "https://"+d.Config.API.Local().String())
	if err != nil || own.err != nil {
		return check.Skipf("%v", errNoAPI)
	}
	failures := make([]error, len(nodes))
	atOnce(manyNodes, len(nodes), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		body, err := own.client.CoreV1().RESTClient().Get().Resource("nodes").Name(nodes[i].Name).SubResource("proxy").Suffix("healthz").Do(ctx).Raw()
		if err != nil && len(body) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(string(body)), " "))
		}
		failures[i] = err
	})
	var out []check.Verdict
	for i, n := range nodes {
		if failures[i] != nil {
			out = append(out, check.Failf("coracle doctor there: check kubelet, check tunnels", "this server does not reach the kubelet of node %s%s: %s", n.Name, notReady(n), short(failures[i]))...)
		}
	}
	return check.Else(first(out, 10), check.Okf("the kubelets of all %d nodes answer", len(nodes)))
}
