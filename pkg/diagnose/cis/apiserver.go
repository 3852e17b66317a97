package cis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// strong are the cipher suites that the benchmark accepts, of TLS 1.2 and 1.3.
const strong = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256," +
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256," +
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"

// onlyStrong reports whether a list of cipher suites has strong ones only.
func onlyStrong(value string, set bool) bool {
	for one := range strings.SplitSeq(value, ",") {
		if !has(one)(strong, true) {
			return false
		}
	}
	return set
}

func apiServer() []row {
	const enable, disable = "enable-admission-plugins", "disable-admission-plugins"
	return []row{
		{"1.2.1", judged, "requests are not anonymous", anonymous},
		{"1.2.2", automated, "no tokens in a file", flag(api, "token-auth-file", unset)},
		{"1.2.3", judged, "Services cannot claim external addresses", inProfile(flag(api, enable, has("DenyServiceExternalIPs")))},
		{"1.2.4", automated, "the API server shows kubelets a certificate", both(flag(api, "kubelet-client-certificate", given), flag(api, "kubelet-client-key", given))},
		{"1.2.5", automated, "the API server verifies kubelets", flag(api, "kubelet-certificate-authority", given)},
		{"1.2.6", automated, "not everything is authorized", flag(api, "authorization-mode", func(v string, set bool) bool { return set && lacks("AlwaysAllow")(v, set) })},
		{"1.2.7", automated, "nodes are authorized as such", flag(api, "authorization-mode", has("Node"))},
		{"1.2.8", automated, "users are authorized by roles", flag(api, "authorization-mode", has("RBAC"))},
		{"1.2.9", judged, "the rate of Events is limited", inProfile(flag(api, enable, has("EventRateLimit")))},
		{"1.2.10", automated, "not everything is admitted", flag(api, enable, lacks("AlwaysAdmit"))},
		{"1.2.11", judged, "images are pulled for each pod", inProfile(flag(api, enable, has("AlwaysPullImages")))},
		{"1.2.12", automated, "pods have service accounts", byDefault(api, disable, lacks("ServiceAccount"), notSet)},
		{"1.2.13", automated, "nothing is made in namespaces that end", byDefault(api, disable, lacks("NamespaceLifecycle"), notSet)},
		{"1.2.14", automated, "kubelets are restricted to their node", flag(api, enable, has("NodeRestriction"))},
		{"1.2.15", automated, "kube-apiserver offers no profiles", flag(api, "profiling", truth(false))},
		{"1.2.16", automated, "there is an audit log", flag(api, "audit-log-path", given)},
		{"1.2.17", automated, "it is kept for 30 days", flag(api, "audit-log-maxage", atLeast(30))},
		{"1.2.18", automated, "10 former files of it are kept", hardened(flag(api, "audit-log-maxbackup", atLeast(10)))},
		{"1.2.19", automated, "a file of it has 100 MB", hardened(flag(api, "audit-log-maxsize", atLeast(100)))},
		{"1.2.20", judged, "requests end in time", byDefault(api, "request-timeout", positive, "upstream's default is a minute")},
		{"1.2.21", automated, "tokens of removed service accounts are refused", byDefault(api, "service-account-lookup", truth(true), notSet)},
		{"1.2.22", automated, "tokens of service accounts are verified with a key for that", flag(api, "service-account-key-file", given)},
		{"1.2.23", automated, "the API server shows etcd a certificate", unlessSocket(api, "etcd-servers", both(flag(api, "etcd-certfile", given), flag(api, "etcd-keyfile", given)))},
		{"1.2.24", automated, "the API is served with TLS", both(flag(api, "tls-cert-file", given), flag(api, "tls-private-key-file", given))},
		{"1.2.25", automated, "users may have certificates", flag(api, "client-ca-file", given)},
		{"1.2.26", automated, "the API server verifies etcd", unlessSocket(api, "etcd-servers", flag(api, "etcd-cafile", given))},
		{"1.2.27", manual, "Secrets are encrypted in etcd", flag(api, "encryption-provider-config", given)},
		{"1.2.28", manual, "by a provider that encrypts", providers},
		{"1.2.29", manual, "the API accepts strong ciphers only", hardened(flag(api, "tls-cipher-suites", onlyStrong))},
		{"1.2.30", automated, "tokens of service accounts are not extended", hardened(flag(api, "service-account-extend-token-expiration", truth(false)))},
	}
}

// hardened says why a cluster does not have one of the hardened defaults.
func hardened(p probe) probe {
	return setBy(p, config.Security.Strict, "a setting of yours replaces coracle's: see coracle config",
		"this cluster began with an earlier version, or with --hardened=false: --hardened sets it")
}

// inProfile says why a cluster does not have what --profile=cis sets.
func inProfile(p probe) probe {
	return setBy(p, config.Security.CIS, "a setting of yours replaces that of --profile=cis: see coracle config", "--profile=cis sets it")
}

// setBy gives a reason for a failure: that of something else if what should set it is in force, and else that it is not.
func setBy(p probe, inForce func(config.Security) bool, replaced, lacking string) probe {
	return func(m *Machine) verdict {
		v := p(m)
		switch {
		case v.result != Fail || v.reason != "":
		case inForce(m.Config.Security):
			v.reason = replaced
		default:
			v.reason = lacking
		}
		return v
	}
}

// positive accepts durations; zero is for ever.
func positive(value string, _ bool) bool {
	d, err := time.ParseDuration(value)
	return err == nil && d > 0
}

// anonymous tells which paths anonymous requests may reach. A file decides about that only if it mentions them.
func anonymous(m *Machine) verdict {
	v := flag(api, "anonymous-auth", truth(false))(m)
	path, _ := m.Parts[api].Flag("authentication-config")
	if v.result == Pass || path == "" {
		return v
	}
	var config struct {
		Anonymous *struct {
			Enabled    bool
			Conditions []struct{ Path string }
		}
	}
	if err := readYAML(path, &config); err != nil {
		return verdict{Fail, err.Error(), "anonymous requests may be possible"}
	}
	rule := config.Anonymous
	switch {
	case rule == nil:
		return verdict{Fail, v.evidence + ", and " + path + " has no field anonymous", "anonymous requests are possible"}
	case !rule.Enabled:
		return verdict{result: Pass, evidence: path + ": anonymous requests are disabled"}
	case len(rule.Conditions) == 0:
		return verdict{Fail, path + ": anonymous requests are enabled for every path", "anonymous requests are possible"}
	}
	var reachable []string
	reason := "health checks are anonymous, as those of load balancers are, and nothing else is; --kube-apiserver-arg=anonymous-auth=false refuses them too"
	for _, c := range rule.Conditions {
		reachable = append(reachable, c.Path)
		if !slices.Contains([]string{"/livez", "/readyz", "/healthz"}, c.Path) {
			reason = "more than health checks is anonymous"
		}
	}
	return verdict{Fail, path + ": " + strings.Join(reachable, ", "), reason}
}

// providers tells how Secrets are written, and no keys. The first entry for a resource counts.
func providers(m *Machine) verdict {
	path, _ := m.Parts[api].Flag("encryption-provider-config")
	if path == "" {
		return flag(api, "encryption-provider-config", given)(m)
	}
	var config struct {
		Resources []struct {
			Resources []string
			Providers []map[string]any
		}
	}
	if err := readYAML(path, &config); err != nil {
		return verdict{Fail, err.Error(), "Secrets may not be encrypted"}
	}
	for _, r := range config.Resources {
		if !slices.ContainsFunc(r.Resources, func(name string) bool { return slices.Contains([]string{"secrets", "*.", "*.*"}, name) }) {
			continue
		}
		if len(r.Providers) == 0 || len(r.Providers[0]) != 1 {
			return verdict{result: Fail, evidence: "the first provider for Secrets in " + path + " is not one"}
		}
		for name := range r.Providers[0] {
			return passes(slices.Contains([]string{"aescbc", "aesgcm", "kms", "secretbox"}, name), fmt.Sprintf("%s writes with %s", path, name))
		}
	}
	return verdict{Fail, "no provider for Secrets in " + path, "Secrets are not encrypted"}
}
