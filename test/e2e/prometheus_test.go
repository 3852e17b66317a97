package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-dev/coracle/test/hosts"
)

// scrapeJob is a job of the documented configuration.
type scrapeJob struct {
	Name      string `yaml:"job_name"`
	Scheme    string `yaml:"scheme"`
	Path      string `yaml:"metrics_path"`
	Discovery []struct {
		Role string `yaml:"role"`
	} `yaml:"kubernetes_sd_configs"`
	Relabel []*relabel.Config `yaml:"relabel_configs"`
}

// components are series that only one component has, by the job that must find them.
var components = map[string]map[string]string{
	"coracle-servers": {
		"kube-apiserver": "apiserver_request_total", "kube-controller-manager": "node_collector_zone_size",
		"kube-scheduler": "scheduler_pending_pods", "etcd": "etcd_server_has_leader", "etcd's API": "grpc_server_handled_total",
		"metrics-server": "metrics_server_storage_points", "clients": "rest_client_requests_total",
		"version": "kubernetes_build_info", "Go": "go_goroutines", "process": "process_resident_memory_bytes",
	},
	"coracle-nodes": {
		"kubelet": "kubelet_running_pods", "kube-proxy": "kubeproxy_sync_proxy_rules_duration_seconds",
		"containerd": "containerd_cri_sandbox_create_network_seconds", "DNS": "coredns_panics_total", "clients": "rest_client_requests_total",
		"version": "kubernetes_build_info", "Go": "go_goroutines", "process": "process_resident_memory_bytes",
	},
	"coracle-containers": {"containers": "container_cpu_usage_seconds_total", "machine": "machine_memory_bytes"},
}

// shared are prefixes of metrics of libraries that each process has.
var shared = []string{
	"go_", "process_", "workqueue_", "rest_client_", "kubernetes_build_info", "kubernetes_feature_enabled", "leader_election_",
	"registered_metrics_total", "hidden_metrics_total", "disabled_metrics_total", "cardinality_enforcement_",
	// from the library for API servers, which the kubelet uses for its own server
	"apiserver_audit_", "apiserver_cel_", "apiserver_client_certificate_", "apiserver_delegated_", "apiserver_envelope_",
	"apiserver_storage_", "apiserver_validation_", "apiserver_webhooks_", "authentication_", "authorization_", "authenticated_",
}

// testPrometheus scrapes like a Prometheus with the documented configuration and permissions.
func testPrometheus(t *testing.T, c *hosts.Cluster) {
	server := c.Servers[0]
	server.Apply(example(t, "monitoring.yaml"))
	token := strings.TrimSpace(server.Kubectl("-n", "monitoring", "create", "token", "prometheus"))
	pem := server.Kubectl("-n", "monitoring", "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
	var config struct {
		Jobs []scrapeJob `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(example(t, "prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]map[string]*dto.MetricFamily{} // by job and host
	for _, job := range config.Jobs {
		found[job.Name] = map[string]map[string]*dto.MetricFamily{}
		for _, h := range job.targets(t, c) {
			page, err := job.scrape(h, token, pem)
			if err != nil {
				t.Fatalf("%s of %s: %v", job.Name, h.Name, err)
			}
			found[job.Name][h.Name] = parseMetrics(t, job.Name+" of "+h.Name, page)
			if _, err := job.scrape(h, "nobody", pem); err == nil {
				t.Errorf("%s of %s is for everybody", job.Name, h.Name)
			}
		}
		for component, series := range components[job.Name] {
			if !anyHas(found[job.Name], series) {
				t.Errorf("%s has no %s of %s", job.Name, series, component)
			}
		}
	}
	if n, m, k := len(found["coracle-servers"]), len(found["coracle-nodes"]), len(found["coracle-containers"]); n != 2 || m != 3 || k != 3 {
		t.Errorf("%d servers, %d nodes, and %d nodes' containers were found", n, m, k)
	}
	for series, names := range containerNames {
		if !anyNamed(found["coracle-containers"], series, names) {
			t.Errorf("no %s has the labels %v, by which dashboards select", series, names)
		}
	}
	for host, families := range found["coracle-servers"] {
		for name := range families {
			common := slices.ContainsFunc(shared, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if _, both := found["coracle-nodes"][host][name]; both && !common {
				t.Errorf("%s is at both endpoints of %s", name, host)
			}
		}
	}
}

// containerNames are labels that some of the series of containers and of pods' networks have, with how their values begin.
var containerNames = map[string]map[string]string{
	"container_cpu_usage_seconds_total":     {"namespace": "default", "pod": "busy-", "container": "busy", "image": "coracle.test/"},
	"container_memory_working_set_bytes":    {"namespace": "default", "pod": "busy-", "container": "busy", "image": "coracle.test/"},
	"container_network_receive_bytes_total": {"namespace": "default", "pod": "busy-", "interface": "eth0"},
}

func anyNamed(of map[string]map[string]*dto.MetricFamily, series string, names map[string]string) bool {
	for _, families := range of {
		for _, m := range families[series].GetMetric() {
			found := 0
			for _, label := range m.GetLabel() {
				if begin, ok := names[label.GetName()]; ok && strings.HasPrefix(label.GetValue(), begin) {
					found++
				}
			}
			if found == len(names) {
				return true
			}
		}
	}
	return false
}

func anyHas(of map[string]map[string]*dto.MetricFamily, series string) bool {
	for _, families := range of {
		if len(families[series].GetMetric()) > 0 {
			return true
		}
	}
	return false
}

// example reads a file of docs/examples.
func example(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// targets are the hosts that a job scrapes: those that Prometheus discovers for the role, after relabelling.
func (j scrapeJob) targets(t *testing.T, c *hosts.Cluster) (out []*hosts.Host) {
	t.Helper()
	for _, found := range discover(t, c, j.Discovery[0].Role) {
		for _, r := range j.Relabel {
			r.NameValidationScheme = model.UTF8Validation
		}
		kept := labels.NewBuilder(labels.FromMap(found))
		if !relabel.ProcessBuilder(kept, j.Relabel...) {
			continue
		}
		address := kept.Get(model.AddressLabel)
		i := slices.IndexFunc(c.Hosts(), func(h *hosts.Host) bool {
			return address == net.JoinHostPort(h.IP.String(), map[string]string{"node": "10250", "endpointslice": "6443"}[j.Discovery[0].Role])
		})
		if i < 0 {
			t.Errorf("%s finds %s, which is not a host", j.Name, address)
			continue
		}
		out = append(out, c.Hosts()[i])
	}
	return out
}

// discover returns the labels that Prometheus gives to targets, as far as the configuration uses them.
func discover(t *testing.T, c *hosts.Cluster, role string) (out []map[string]string) {
	t.Helper()
	get := func(into any, args ...string) {
		t.Helper()
		text := c.Servers[0].Kubectl(append([]string{"get", "-o", "json", "--as=system:serviceaccount:monitoring:prometheus"}, args...)...)
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	switch role {
	case "node":
		var nodes corev1.NodeList
		get(&nodes, "nodes")
		for _, n := range nodes.Items {
			address := net.JoinHostPort(n.Status.Addresses[0].Address, fmt.Sprint(n.Status.DaemonEndpoints.KubeletEndpoint.Port))
			out = append(out, map[string]string{model.AddressLabel: address, "__meta_kubernetes_node_name": n.Name})
		}
	case "endpointslice":
		var slices discoveryv1.EndpointSliceList
		get(&slices, "endpointslices", "-A")
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				for _, p := range s.Ports {
					out = append(out, map[string]string{
						model.AddressLabel:            net.JoinHostPort(e.Addresses[0], fmt.Sprint(*p.Port)),
						"__meta_kubernetes_namespace": s.Namespace, "__meta_kubernetes_service_name": s.Labels[discoveryv1.LabelServiceName],
						"__meta_kubernetes_endpointslice_port_name": *p.Name,
					})
				}
			}
		}
	default:
		t.Fatalf("this test does not know the role %q", role)
	}
	return out
}

// scrape gets a page from the host itself, because others cannot reach every node.
func (j scrapeJob) scrape(h *hosts.Host, token, pem string) ([]byte, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(pem))
	transport := &http.Transport{DialContext: h.Dial, TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	port, path := "10250", j.Path
	if j.Discovery[0].Role == "endpointslice" {
		port = "6443"
	}
	if path == "" {
		path = "/metrics"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Scheme+"://"+net.JoinHostPort(h.IP.String(), port)+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %.300s", answer.Status, page)
	}
	return page, err
}

// parseMetrics parses a page, in which each series must be unique.
func parseMetrics(t *testing.T, what string, page []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	series := 0
	for name, family := range families {
		seen := map[string]bool{}
		for _, m := range family.GetMetric() {
			values := map[string]string{}
			for _, l := range m.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			key := ""
			for _, l := range slices.Sorted(maps.Keys(values)) {
				key += fmt.Sprintf("%s=%q,", l, values[l])
			}
			if seen[key] {
				t.Errorf("%s has %s{%s} twice", what, name, key)
			}
			seen[key] = true
			series++
		}
	}
	t.Logf("%s: %d families, %d series, %d kB", what, len(families), series, len(page)>>10)
	return families
}
