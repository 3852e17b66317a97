// Package containerd runs containerd inside the node process. Containers and their shims are separate processes: they keep running
// when containerd stops, and containerd finds them again at its next start.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // the plugins
	"github.com/containerd/containerd/v2/cmd/containerd/server"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/log"
	"github.com/pelletier/go-toml/v2"
	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/crisocket"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/runtime/handlers"
)

// Containerd is containerd with its CRI service. Paths are absolute.
type Containerd struct {
	// ConfigFile is where the generated configuration is written. DropIns is a directory of the user's
	// *.toml files that are merged after it, in the order of their names.
	ConfigFile, DropIns string

	Root       string // content, snapshots and metadata; survives reboots
	State      string // the bundles of running containers
	Socket     string // gRPC and CRI
	ShimSocket string // directory of the shims' sockets, at most 42 bytes long

	Snapshotter  string   // overlayfs or native
	RuncState    string   // directory of runc's state
	Databases    []string // its files of bbolt
	Runc         string   // executable
	Shim         string   // executable
	SharedShims  bool     // pods share shims
	CNIBin       []string // directories with CNI plugins
	CNIConf      string   // directory with CNI configurations
	SandboxImage string   // the pause image, which has to be imported
	Registries   []string // directories with hosts.toml files
	Pulls        Pulls
	Found        []handlers.Handler // runtimes that the machine has besides runc

	Systemd           bool // systemd runs, and keeps the shims in a scope
	SystemdCgroup     bool // systemd manages the cgroups
	NoKeyrings        bool // containers cannot have keyrings of their own
	RestrictOOMScore  bool // CAP_SYS_RESOURCE is missing
	UnprivilegedPorts bool // the kernel has ip_unprivileged_port_start
	UnprivilegedICMP  bool // the kernel has ping_group_range
	AppArmor          bool
	Volatile          bool // writes need not survive a crash of the machine
	LogLevel          logrus.Level
	PreferIPv6        bool // of two addresses of a pod, the IPv6 one is the first
}

// Run serves until ctx is done. It is ready when CRI answers. Stopping leaves pods running.
func (c Containerd) Run(ctx context.Context, ready func()) error {
	file, err := c.write()
	if err != nil {
		return err
	}
	log.L = logger(c.LogLevel)
	pulls := &puller{Pulls: c.Pulls, dirs: c.Registries, joined: strings.Join(c.Registries, ":")}
	c.hook(pulls)
	config, err := load(ctx, file, c.DropIns)
	if err != nil {
		return err
	}
	if err := c.addFound(config, c.Found); err != nil {
		return err
	}
	text, err := toml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding containerd's configuration: %w", err)
	}
	lifecycle.RunsWith(ctx, state.Settings{TOML: string(text)})
	if err := c.Pulls.checkPulls(config); err != nil {
		return err
	}
	if err := prepareDirs(config.Root, func() error { return server.CreateTopLevelDirectories(config) }); err != nil {
		return err
	}
	if err := c.checkDatabases(); err != nil {
		return err
	}
	room := c.awaitRoom(ctx)
	// The services get a context that is never done, because Stop ends them in the right order.
	s, err := server.New(context.WithoutCancel(ctx), config)
	if err != nil {
		return c.explain(err)
	}
	defer stop(s)
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	if err := s.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("starting its services: %w", err)
	}
	conn, err := crisocket.Dial(c.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	if err := c.awaitCRI(ctx, s, client); err != nil || ctx.Err() != nil {
		return err
	}
	if err := c.removeOrphans(ctx, client, room); errors.Is(err, errNoRoom) {
		return err
	} else if err != nil {
		log.L.WithError(err).Warn("removing shims and network namespaces of interrupted starts")
	}
	lifecycle.ProbeWith(ctx, func(ctx context.Context) error {
		_, err := client.Version(ctx, &cri.VersionRequest{})
		return err
	})
	if c.Systemd {
		go c.keepShimsInScope(ctx)
	}
	ready()
	pulls.watch(ctx)
	<-ctx.Done()
	return nil
}

// write renders the configuration into its file.
func (c Containerd) write() (string, error) {
	data, err := c.render()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(c.ConfigFile, data, 0o600); err != nil {
		return "", fmt.Errorf("writing containerd's configuration: %w", err)
	}
	return c.ConfigFile, nil
}

// prepareDirs makes the top-level directories and removes temporary mounts that a crash left in the root.
func prepareDirs(root string, create func() error) error {
	if err := create(); err != nil {
		return fmt.Errorf("making containerd's directories: %w", err)
	}
	if err := mount.SetTempMountLocation(filepath.Join(root, "tmpmounts")); err != nil {
		return fmt.Errorf("making the directory of temporary mounts: %w", err)
	}
	warnings, err := mount.CleanupTempMounts(0)
	if err != nil {
		warnings = append(warnings, err)
	}
	for _, w := range warnings {
		log.L.WithError(w).Warn("removing a temporary mount that was left over")
	}
	return nil
}

// awaitCRI waits until the socket answers the first requests of the kubelet.
func (c Containerd) awaitCRI(ctx context.Context, s *server.Server, client cri.RuntimeServiceClient) error {
	plugins := make(chan struct{})
	go func() {
		s.Wait() // it recovers the running sandboxes and containers
		close(plugins)
	}()
	lifecycle.WaitingFor(ctx, "containerd to find the running containers again")
	select {
	case <-plugins:
	case <-ctx.Done():
		return nil
	}
	return lifecycle.Until(ctx, "CRI on "+c.Socket, func(ctx context.Context) error {
		if _, err := client.Version(ctx, &cri.VersionRequest{}); err != nil {
			return err
		}
		_, err := client.Status(ctx, &cri.StatusRequest{})
		return err
	})
}

// stop closes the services. It waits for at most 5 s, because a node has only limited time to stop.
func stop(s *server.Server) {
	if log.L.Logger.GetLevel() < logrus.DebugLevel {
		log.L.Logger.SetLevel(logrus.FatalLevel) // they log errors about each other while they stop
	}
	done := make(chan struct{})
	go func() {
		s.Stop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		logrus.WithField("component", "containerd").Warn("containerd's services take long to stop: not waiting for them")
	}
}
