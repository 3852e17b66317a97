package cis

import (
	"fmt"
	"path/filepath"
	"strings"
)

const proxy = "kube-proxy"

// node lists the recommendations for all nodes.
func node() []row {
	service := func(m *Machine) []string { return existing(m.Service) }
	conf := func(name string) list {
		return func(m *Machine) []string { return []string{m.Config.Dirs.NodeConfig(name)} }
	}
	ofProxy := func(m *Machine) []string {
		path, _ := m.Parts[proxy].Flag("kubeconfig")
		return existing(path)
	}
	ca := func(m *Machine) []string {
		path, _ := m.kubelet("authentication", "x509", "clientCAFile").(string)
		return []string{path}
	}
	equal := func(want bool) func(any) bool { return func(v any) bool { return v == want } }
	text := func(v any) bool { s, ok := v.(string); return ok && s != "" }
	return []row{
		{"4.1.1", automated, "mode of the service's file", serviceFile},
		{"4.1.2", automated, "owner of the service's file", because(rootOwned(service), NotApplicable, noService)},
		{"4.1.3", manual, "mode of kube-proxy's kubeconfig", mode(ofProxy, 0o600)},
		{"4.1.4", manual, "owner of kube-proxy's kubeconfig", rootOwned(ofProxy)},
		{"4.1.5", automated, "mode of the kubelet's kubeconfig", mode(conf("kubelet.kubeconfig"), 0o600)},
		{"4.1.6", automated, "owner of the kubelet's kubeconfig", rootOwned(conf("kubelet.kubeconfig"))},
		{"4.1.7", manual, "mode of the authority of the kubelet's clients", mode(ca, 0o644)},
		{"4.1.8", manual, "owner of the authority of the kubelet's clients", rootOwned(ca)},
		{"4.1.9", automated, "mode of the kubelet's configuration", mode(conf("kubelet.yaml"), 0o600)},
		{"4.1.10", automated, "owner of the kubelet's configuration", rootOwned(conf("kubelet.yaml"))},
		{"4.2.1", automated, "the kubelet answers nobody anonymous", kubelet(equal(false), "authentication", "anonymous", "enabled")},
		{"4.2.2", automated, "the kubelet asks who may do what", kubelet(func(v any) bool { return text(v) && v != "AlwaysAllow" }, "authorization", "mode")},
		{"4.2.3", automated, "the kubelet's clients have certificates", kubelet(text, "authentication", "x509", "clientCAFile")},
		{"4.2.4", manual, "the kubelet has no port without authentication", kubelet(func(v any) bool { return v == nil || v == 0.0 }, "readOnlyPort")},
		{"4.2.5", manual, "idle streams end", kubelet(func(v any) bool { return v != "0s" }, "streamingConnectionIdleTimeout")},
		{"4.2.6", automated, "the kubelet keeps chains of iptables", iptables},
		{"4.2.7", judged, "the node has its own name", because(flag("kubelet", "hostname-override", unset), Fail, "the name is the one in the node's certificate, which the API server enforces")},
		{"4.2.8", judged, "Events are recorded", kubelet(func(v any) bool { n, ok := v.(float64); return v == nil || ok && n >= 0 }, "eventRecordQPS")},
		{"4.2.9", manual, "the kubelet serves with a certificate of the cluster", both(kubelet(equal(true), "serverTLSBootstrap"), mode(func(m *Machine) []string {
			return []string{filepath.Join(m.Config.Dirs.NodePKI(), "kubelet-server-current.pem")}
		}, 0o600))},
		{"4.2.10", automated, "the kubelet's certificate is rotated", kubelet(equal(true), "rotateCertificates")},
		{"4.2.11", manual, "the kubelet's serving certificate is rotated", kubelet(rotated, "featureGates")},
		{"4.2.12", manual, "the kubelet accepts strong ciphers only", hardened(kubelet(func(v any) bool {
			return onlyStrong(strings.Join(strings.Fields(strings.Trim(fmt.Sprint(v), "[]")), ","), v != nil)
		}, "tlsCipherSuites"))},
		{"4.2.13", manual, "a pod's processes are limited", hardened(kubelet(func(v any) bool { n, ok := v.(float64); return ok && n > 0 }, "podPidsLimit"))},
		{"4.2.14", manual, "pods have a filter of system calls", hardened(kubelet(equal(true), "seccompDefault"))},
		{"4.3.1", automated, "kube-proxy's metrics are on loopback only", orFile(proxy, "metricsBindAddress", loopback, flag(proxy, "metrics-bind-address", loopback))},
	}
}

// loopback accepts upstream's default too.
func loopback(v string, set bool) bool {
	return !set || strings.HasPrefix(v, "127.") || strings.HasPrefix(v, "[::1]") || v == "::1"
}

// rotated looks for the gate in the kubelet's map of feature gates.
func rotated(gates any) bool {
	tree, _ := gates.(map[string]any)
	var list []string
	for name, enabled := range tree {
		list = append(list, fmt.Sprintf("%s=%v", name, enabled))
	}
	return gate("RotateKubeletServerCertificate")(strings.Join(list, ","), true)
}

const noService = "coracle was not installed as a service here; another program has started it"

// serviceFile: a unit of systemd is data, a service of OpenRC is a script that only root may run.
func serviceFile(m *Machine) verdict {
	service := func(m *Machine) []string { return existing(m.Service) }
	if strings.HasPrefix(m.Service, "/etc/init.d/") {
		return because(mode(service, 0o700), Pass, "it is a script, so root may execute it")(m)
	}
	return because(because(mode(service, 0o600), NotApplicable, noService), Fail, "earlier versions made it readable: coracle install writes it again")(m)
}

// iptables: the chains are for kube-proxy's other modes.
func iptables(m *Machine) verdict {
	v := kubelet(func(v any) bool { return v != false }, "makeIPTablesUtilChains")(m)
	if m.kubelet("makeIPTablesUtilChains") != false {
		return v
	}
	s, started := m.Parts[proxy]
	value, _ := s.Flag("proxy-mode")
	if path, _ := s.Flag("config"); path != "" {
		value, _, _ = fieldOf(path, "mode") // if it cannot be read, the mode is not nftables
	}
	switch {
	case !started:
		v.evidence += ", kube-proxy was not started here"
	case value == "nftables":
		v.evidence += ", kube-proxy --proxy-mode=nftables"
	default:
		v.evidence += fmt.Sprintf(", kube-proxy --proxy-mode=%s", value)
		return v
	}
	return verdict{NotApplicable, v.evidence, "nobody would use the chains: Services are rules of nftables, in tables of their own"}
}
