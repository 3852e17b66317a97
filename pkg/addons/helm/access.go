package helm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// access is how a chart is fetched: trust, logins and registries.yaml.
type access struct {
	client *http.Client
	ownTLS bool   // the client's trust is set by the HelmChart
	api    string // HOST:PORT of the API server
	// login is sent to the repository's host; if loginForAllHosts, also to hosts its index refers to.
	login            login
	loginForAllHosts bool
	// registries are logins by the HOST or HOST:PORT of a registry.
	registries map[string]login
	plainHTTP  bool
	// mirrors is registries.yaml, for charts in registries; may be nil.
	mirrors   *registries.Live
	noDefault bool // a registry that has mirrors is not asked itself
	otherHost bool // the index named another host than the HelmChart
	tenant    bool // the HelmChart has a ServiceAccount
	// memorySlot admits one memory-hungry job at a time: rendering a chart or parsing an index; shared by all workers.
	memorySlot chan struct{}
}

// login is a user name and a password.
type login struct{ user, password string }

// accessFor reads the Secrets and ConfigMaps that a chart's spec names.
func (c *controller) accessFor(ctx context.Context, ch *chart) (access, error) {
	spec := ch.Spec
	a := access{
		api: c.clients.server.Host, loginForAllHosts: spec.AuthPassCredentials, plainHTTP: spec.PlainHTTP, memorySlot: c.memorySlot,
		mirrors: c.Registries, noDefault: c.NoDefault, tenant: spec.ServiceAccountName != "",
	}
	clients, err := c.as(ctx, ch)
	if err != nil {
		return access{}, err
	}
	read := clients.secretsOf(ch.Namespace)
	if name := spec.AuthSecret.Name; name != "" {
		data, err := requiredKeys(ctx, read, "authSecret", name, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		if err != nil {
			return access{}, err
		}
		a.login = login{string(data[corev1.BasicAuthUsernameKey]), string(data[corev1.BasicAuthPasswordKey])}
	}
	if name := spec.DockerRegistrySecret.Name; name != "" {
		data, err := requiredKeys(ctx, read, "dockerRegistrySecret", name, corev1.DockerConfigJsonKey)
		if err != nil {
			return access{}, err
		}
		if a.registries, err = dockerLogins(data[corev1.DockerConfigJsonKey]); err != nil {
			return access{}, fmt.Errorf("dockerRegistrySecret: Secret %s: %w", name, err)
		}
	}
	roots := []string{spec.RepoCA}
	if name := spec.RepoCAConfigMap.Name; name != "" {
		m, err := clients.core.CoreV1().ConfigMaps(ch.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return access{}, fmt.Errorf("repoCAConfigMap: %w", err)
		}
		for _, text := range m.Data {
			roots = append(roots, text)
		}
	}
	a.ownTLS = spec.InsecureSkipTLSVerify || slices.ContainsFunc(roots, notBlank)
	a.client, err = newClient(roots, spec.InsecureSkipTLSVerify)
	return a, err
}

// requiredKeys reads a Secret. It is an error if the Secret or a key is missing or empty.
func requiredKeys(ctx context.Context, read secrets, field, name string, keys ...string) (map[string][]byte, error) {
	s, err := read(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	if s == nil {
		return nil, fmt.Errorf("%s: there is no Secret %s", field, name)
	}
	for _, key := range keys {
		if len(s.Data[key]) == 0 {
			return nil, fmt.Errorf("%s: Secret %s has no key %s", field, name, key)
		}
	}
	return s.Data, nil
}

// notBlank reports whether a text has other characters than white space.
func notBlank(text string) bool { return strings.TrimSpace(text) != "" }

// newClient makes a client that trusts the roots, in PEM, and those of this machine.
func newClient(roots []string, insecure bool) (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: insecure}
	if slices.ContainsFunc(roots, notBlank) {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // a machine may have none
		}
		for _, r := range roots {
			if notBlank(r) && !pool.AppendCertsFromPEM([]byte(r)) {
				return nil, fmt.Errorf("repoCA or repoCAConfigMap holds no certificate in PEM")
			}
		}
		config.RootCAs = pool
	}
	return clientWith(config, dialPatience), nil
}

// Time limits of fetching. There are few workers, and one that waits for an unreachable repository delays other charts.
const (
	dialPatience   = 10 * time.Second
	answerPatience = 30 * time.Second
	fetchPatience  = 2 * time.Minute // for all requests of a chart
)

// clientWith makes a client with a time limit for dialing.
func clientWith(config *tls.Config, dial time.Duration) *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dial}).DialContext,
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     true,
		DisableKeepAlives:     true, // a chart is fetched once
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: answerPatience,
	}
	return &http.Client{Transport: transport, CheckRedirect: redirected}
}

// redirected drops logins when a redirect leads from TLS to plain HTTP; net/http does so only for another host.
func redirected(r *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most {
		return fmt.Errorf("more than %d redirects", most)
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		r.Header.Del("Authorization")
	}
	return nil
}

// dockerLogins reads the contents of a Secret of type kubernetes.io/dockerconfigjson.
func dockerLogins(data []byte) (map[string]login, error) {
	var file struct {
		Auths map[string]struct{ Username, Password, Auth string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("key %s is not valid JSON", corev1.DockerConfigJsonKey) // the decoder's error may contain a password
	}
	out := map[string]login{}
	for host, entry := range file.Auths {
		l := login{entry.Username, entry.Password}
		if entry.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(entry.Auth)
			user, password, ok := strings.Cut(string(text), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("auth of %s is not USER:PASSWORD in base64", host)
			}
			l = login{user, password}
		}
		host = strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")
		host, _, _ = strings.Cut(host, "/") // https://index.docker.io/v1/
		out[host] = l
	}
	return out, nil
}
