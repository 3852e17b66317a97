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

// apiTimeout limits one request.
const apiTimeout = 3 * time.Second

// connect makes a client that uses the balancer, so that it reaches any server that works: as the administrator on a
// server, as the node on an agent.
func (d *Doctor) connect() access {
	file := d.Config.Dirs.NodeConfig("node.kubeconfig")
	if d.Config.Role == config.Server {
		file = d.Config.Dirs.ServerConfig("admin.kubeconfig")
	}
	return d.connectAs(file, "https://"+d.Config.Node.Balancer().String())
}

// connectAs makes a client with a kubeconfig and another address.
func (d *Doctor) connectAs(kubeconfig, server string) access {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return access{err: fmt.Errorf("reading %s: %w", kubeconfig, err)}
	}
	cfg.Host, cfg.Timeout, cfg.QPS = server, apiTimeout, -1
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // all requests stay in the cluster
	client, err := kubernetes.NewForConfig(cfg)
	return access{client, err}
}

func (d *Doctor) apiAnswers(ctx context.Context) []check.Verdict {
	const fix = "check servers says which server is at fault; on a server also check etcd and check components"
	api := d.api()
	if api.err != nil {
		return check.Failf("restart coracle, which writes it anew", "there is no way to the API: %v", api.err)
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

// failing returns the lines of /readyz about failures, or else all of it.
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

// short returns the end of an error, which says what happened; the beginning repeats the request.
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

// answer is the result of a request to a server.
type answer struct {
	tcpbalancer.Server
	err  error
	skew []check.Verdict
}

// askServers requests /readyz of every known server.
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
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<14)) // the status is enough
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		a.skew = check.JudgeSkew(s.Address, date, began, time.Now())
	}
	if response.StatusCode != http.StatusOK {
		a.err = fmt.Errorf("it answers %s: %s", response.Status, failing(string(body)))
	}
	return a
}

// tls is the configuration with which this node verifies servers and identifies itself. Every server's certificate is
// valid for loopback, but perhaps not for the name by which this node reaches it.
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
		fix := "see coracle doctor there, and whether a firewall is between: nc -vz " + strings.Replace(a.Address, ":", " ", 1)
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
		return check.Skipf("there is no other server that answers")
	}
	return check.Else(out, check.Okf("%d other servers agree with this clock", asked))
}

func (d *Doctor) tunnels(context.Context) []check.Verdict {
	var all []state.Tunnel
	if !d.detail(state.TunnelsDetail, &all) || len(all) == 0 {
		if d.Config.Role == config.Agent {
			return check.Failf("check servers says what the servers answer", "this node has no tunnel to any server: logs, exec and webhooks need one where servers cannot dial nodes")
		}
		return check.Okf("none is needed: there is no other server")
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
		out = append(out, check.Failf("check servers says whether it answers; it is tried again and again by itself", "no tunnel to server %s: %s", t.Server, t.Error)...)
	}
	return check.Else(out, check.Okf("to %s", strings.Join(good, ", ")))
}

// manyNodes is the number of nodes that are tried in parallel.
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

// nodeAccess connects to every kubelet through this machine's own server, directly or through the node's tunnel.
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
