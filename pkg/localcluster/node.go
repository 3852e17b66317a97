package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/kubeconfig"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// Paths on a node.
const (
	coraclePath = "/usr/local/bin/coracle"
	tokenPath   = "/etc/coracle/token"
	etcHosts    = "/etc/hosts"
	etcPasswd   = "/etc/passwd"
)

// boot makes a node's host and starts it.
func (k *keeper) boot(n *Node) error {
	name := k.record.Name
	for _, sub := range []string{"data", "kubelet", "log"} {
		if err := os.MkdirAll(k.store.host(name, n.Name, sub), 0o755); err != nil {
			return err
		}
	}
	h := &nshost.Host{
		Name: n.Name, Dir: k.store.host(name, n.Name), Cgroup: n.Cgroup,
		Mounts: k.mounts(n), Files: k.files(n),
		Wire: k.net.wire, Addrs: prefixes(n.IP, k.record.Network.Bits()), Gateways: addrs(k.record.Machine()),
	}
	if err := h.Prepare(); err != nil {
		return err
	}
	k.mu.Lock()
	k.members[n.Name] = &member{node: *n, host: h, wanted: true}
	k.mu.Unlock()
	if err := h.Boot(); err != nil {
		return err
	}
	return k.setNode(n.Name, func(n *Node) { n.PID = h.PID() })
}

// mounts are a node's disks, what all nodes share, and empty places over what is this machine's own business.
func (k *keeper) mounts(n *Node) []nshost.Mount {
	name, on := k.record.Name, paths.Default()
	mounts := []nshost.Mount{
		{Source: k.store.host(name, n.Name, "data"), Target: on.Data},
		{Source: k.store.host(name, n.Name, "kubelet"), Target: on.Kubelet},
		{Source: k.store.host(name, n.Name, "log"), Target: "/var/log"},
		{Target: k.store.Dir, Tmpfs: true},
		{Target: on.Config, Tmpfs: true},
		{Target: filepath.Dir(on.CNIConfig()), Tmpfs: true},
		{Source: k.store.tokenFile(name), Target: tokenPath, ReadOnly: true},
		{Source: k.store.executable(name), Target: coraclePath, ReadOnly: true},
	}
	payload := k.record.Payload
	if sum := filepath.Base(payload); len(sum) == 64 { // unpacked, and named by its digest
		mounts = append(mounts, nshost.Mount{Source: payload, Target: filepath.Join(on.Payloads(), sum), ReadOnly: true})
	} else {
		mounts = append(mounts, nshost.Mount{Source: payload, Target: payload, ReadOnly: true})
	}
	if n.Role == Server && k.record.Config != "" {
		mounts = append(mounts, nshost.Mount{Source: k.record.Config, Target: filepath.Join(on.Config, "config.yaml"), ReadOnly: true})
	}
	if paths.Exists(on.RegistryHosts()) { // mirrors of registries are as good for nodes as for this machine
		mounts = append(mounts, nshost.Mount{Source: on.RegistryHosts(), Target: on.RegistryHosts(), ReadOnly: true})
	}
	if paths.Exists(on.Registries()) {
		mounts = append(mounts, nshost.Mount{Source: on.Registries(), Target: on.Registries(), ReadOnly: true})
	}
	if n.Name != k.record.Nodes[0].Name {
		return mounts
	}
	seen := map[string]bool{}
	for i, image := range k.record.Images { // the first node imports them, and the others share what it has
		as := filepath.Base(image)
		if seen[as] {
			as = fmt.Sprintf("%d-%s", i, as)
		}
		seen[as] = true
		mounts = append(mounts, nshost.Mount{Source: image, Target: filepath.Join(on.Images(), as), ReadOnly: true})
	}
	return mounts
}

// files are what a node has in /etc of its own.
func (k *keeper) files(n *Node) map[string]string {
	var b strings.Builder
	known, err := os.ReadFile(etcHosts)
	if err != nil {
		known = []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	}
	b.Write(known)
	b.WriteString("\n")
	for _, other := range k.record.Nodes {
		fmt.Fprintf(&b, "%s %s\n", other.IP, other.Name)
	}
	files := map[string]string{
		"/etc/resolv.conf": resolvConf(k.record.Wire()),
		"/etc/hostname":    n.Name + "\n",
		etcHosts:           b.String(),
	}
	if !paths.Exists(etcPasswd) { // in a container with little else than a program; the kubelet looks there for its user
		files[etcPasswd] = "root:x:0:0:root:/root:/bin/sh\n"
	}
	return files
}

// nodeEnv is the environment of coracle on a node: nothing of the user's but the way to registries.
func nodeEnv() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains([]string{"http_proxy", "https_proxy", "no_proxy", "all_proxy", "lang", "tz"}, strings.ToLower(name)) {
			env = append(env, e)
		}
	}
	return env
}

// arguments are coracle's on a node. The first server makes the cluster, all others join it.
func (k *keeper) arguments(n Node) []string {
	args := []string{n.Role, "--token-file", tokenPath}
	if n.Role == Server {
		args = append(args, "--tls-san", k.record.API().Addr().String())
	}
	if first := k.record.Nodes[0]; n.Name != first.Name {
		args = append(args, "--server", fmt.Sprintf("https://%s:%d", first.IP, apiPort))
	}
	return args
}

// coracle starts coracle on a node and returns a function that waits until it ends, and says why.
func (k *keeper) coracle(m *member) (ended func() error, err error) {
	path := k.store.NodeLog(k.record.Name, m.node.Name)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := m.host.Command(coraclePath, k.arguments(m.node)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = k.env, log, log
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		return nil, err
	}
	return func() error {
		defer release()
		err := cmd.Wait()
		if said := lastLine(path); said != "" {
			err = errors.New(strings.TrimPrefix(said, "coracle: "))
		}
		return err
	}, nil
}

// lastLine is the last thing that a log says.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// writeKubeconfig writes the administrator's kubeconfig for clients on this machine.
func (k *keeper) writeKubeconfig() error {
	first := k.member(k.record.Nodes[0].Name).host
	data, err := os.ReadFile(first.Path(filepath.Join(paths.Default().Config, "kubeconfig.yaml")))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", first.Name, err)
	}
	f, err := kubeconfig.Parse(data)
	if err != nil {
		return err
	}
	if err := f.Rename(k.record.Context()); err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", first.Name, err)
	}
	f.SetServer("https://" + k.record.API().String())
	if data, err = f.Encode(); err != nil {
		return err
	}
	return writePrivate(k.store.Kubeconfig(k.record.Name), data)
}
