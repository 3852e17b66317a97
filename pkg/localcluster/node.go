package localcluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
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

// boot makes a node's host and boots it.
func (h *holder) boot(n *Node) error {
	name := h.record.Name
	for _, sub := range []string{"data", "kubelet", "log"} {
		if err := os.MkdirAll(h.store.host(name, n.Name, sub), 0o755); err != nil {
			return err
		}
	}
	machine := &nshost.Host{
		Name: n.Name, Dir: h.store.host(name, n.Name), Cgroup: n.Cgroup,
		Mounts: h.mounts(n), Files: h.files(n),
		Wire: h.net.wire, Addrs: []netip.Prefix{netip.PrefixFrom(n.IP, h.record.Network.Bits())}, Gateways: []netip.Addr{h.record.Machine()},
	}
	if err := machine.Prepare(); err != nil {
		return err
	}
	h.mu.Lock()
	h.members[n.Name] = &member{node: *n, host: machine, wanted: true}
	h.mu.Unlock()
	if err := machine.Boot(); err != nil {
		return err
	}
	return h.setNode(n.Name, func(n *Node) { n.PID = machine.PID() })
}

// mounts lists a node's mounts: its disks, the files that all nodes share, and empty directories over this machine's own configuration.
func (h *holder) mounts(n *Node) []nshost.Mount {
	name, on := h.record.Name, paths.Default()
	mounts := []nshost.Mount{
		{Source: h.store.host(name, n.Name, "data"), Target: on.Data},
		{Source: h.store.host(name, n.Name, "kubelet"), Target: on.Kubelet},
		{Source: h.store.host(name, n.Name, "log"), Target: "/var/log"},
		{Target: h.store.Dir, Tmpfs: true},
		{Target: on.Config, Tmpfs: true},
		{Target: filepath.Dir(on.CNIConfig()), Tmpfs: true},
		{Source: h.store.tokenFile(name), Target: tokenPath, ReadOnly: true},
		{Source: h.store.executable(name), Target: coraclePath, ReadOnly: true},
	}
	payload := nshost.Mount{Source: h.record.Payload, Target: h.record.Payload, ReadOnly: true}
	if sum := filepath.Base(payload.Source); len(sum) == 64 { // named by its SHA-256
		payload.Target = filepath.Join(on.Payloads(), sum)
	}
	mounts = append(mounts, payload)
	if n.Role == Server && h.record.Config != "" {
		mounts = append(mounts, configMounts(h.record.Config, on.Config)...)
	}
	for _, path := range []string{on.RegistryHosts(), on.Registries()} { // nodes use this machine's registry mirrors
		if paths.Exists(path) {
			mounts = append(mounts, nshost.Mount{Source: path, Target: path, ReadOnly: true})
		}
	}
	if n.Name != h.record.Nodes[0].Name {
		return mounts
	}
	seen := map[string]bool{}
	for i, image := range h.record.Images { // the first node imports them, and shareImages links them into the others
		as := filepath.Base(image)
		if seen[as] {
			as = fmt.Sprintf("%d-%s", i, as)
		}
		seen[as] = true
		mounts = append(mounts, nshost.Mount{Source: image, Target: filepath.Join(on.Images(), as), ReadOnly: true, Optional: true}) // a node that starts again has them
	}
	return mounts
}

// files returns the node's own files in /etc.
func (h *holder) files(n *Node) map[string]string {
	var b strings.Builder
	known, err := os.ReadFile(etcHosts)
	if err != nil {
		known = []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	}
	b.Write(known)
	b.WriteString("\n")
	for _, other := range h.record.Nodes {
		fmt.Fprintf(&b, "%s %s\n", other.IP, other.Name)
	}
	files := map[string]string{
		"/etc/resolv.conf": resolvConf(h.record.Wire()),
		"/etc/hostname":    n.Name + "\n",
		etcHosts:           b.String(),
	}
	if !paths.Exists(etcPasswd) { // in a minimal container; the kubelet looks up its user there
		files[etcPasswd] = "root:x:0:0:root:/root:/bin/sh\n"
	}
	return files
}

// nodeEnv is the environment of coracle on a node: of the user's variables only those for proxies and locale.
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

// arguments returns the arguments of coracle on a node. The first server starts the cluster, all other nodes join it.
func (h *holder) arguments(n Node) []string {
	args := []string{n.Role, "--token-file", tokenPath}
	if n.Role == Server {
		args = append(args, "--tls-san", h.record.API().Addr().String(), "--etcd-disable-snapshots")
	}
	if first := h.record.Nodes[0]; n.Name != first.Name {
		args = append(args, "--server", fmt.Sprintf("https://%s:%d", first.IP, apiPort))
	}
	return args
}

// coracle starts coracle on a node. The channel gets the reason of its end.
func (h *holder) coracle(m *member) <-chan error {
	ended := make(chan error, 1)
	path := h.store.NodeLog(h.record.Name, m.node.Name)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		ended <- err
		return ended
	}
	defer log.Close()
	cmd := m.host.Command(coraclePath, h.arguments(m.node)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = h.env, log, log
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		ended <- err
		return ended
	}
	go func() {
		defer release()
		err := cmd.Wait()
		if last := lastLine(path); last != "" {
			err = errors.New(strings.TrimPrefix(last, "coracle: "))
		}
		ended <- err
	}()
	return ended
}

// lastLine returns the last line of a log, "" if it has none.
func lastLine(path string) string {
	data, _ := os.ReadFile(path)
	text := strings.TrimSpace(string(data))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// prepare makes the files that the nodes share, and mounts the file system for their disks if needed.
func (h *holder) prepare() error {
	name := h.record.Name
	if err := atomicfile.Write(h.store.tokenFile(name), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	if err := bindExecutable(h.store.executable(name)); err != nil {
		return err
	}
	hosts := h.store.hosts(name)
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(hosts, &fs); err != nil {
		return err
	}
	if fs.Type != unix.OVERLAYFS_SUPER_MAGIC && (!h.record.Ephemeral || fs.Type == unix.TMPFS_MAGIC) {
		return nil
	}
	// An overlayfs, as in a container, cannot hold the upper layers of another one.
	if err := unix.Mount("tmpfs", hosts, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting memory for the nodes' disks: %w", err)
	}
	return nil
}

// bindExecutable mounts this executable at a path, where it stays the same when an upgrade replaces the original file.
func bindExecutable(at string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	if err := os.WriteFile(at, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(self, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", self, at, err)
	}
	return nil
}
