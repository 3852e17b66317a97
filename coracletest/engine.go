package coracletest

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// needsEngine reports whether this process cannot make clusters itself, so that they are made in containers.
func needsEngine() bool { return runtime.GOOS != "linux" || os.Geteuid() != 0 }

// engine makes a cluster in a container of Docker or podman. The container ends with its standard input, and its engine removes it then.
type engine struct {
	program   string // docker or podman
	image     string
	container string
	// shared is a directory of this machine that is the containers' /tmp: coracle run has the kubeconfig there.
	shared string
}

// containerAPI is the port of the API in the container.
const containerAPI = "6443"

func newEngine(ctx context.Context, executable string, o Options) (*engine, error) {
	program, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	e := &engine{program: program, container: containerPrefix + strings.ToLower(rand.Text()[:10]), shared: filepath.Join(cache, "shared")}
	if err := os.MkdirAll(e.shared, 0o700); err != nil {
		return nil, err
	}
	e.sweep(ctx)
	if o.Artifacts != "" { // or the engine would make it, for root
		if err := os.MkdirAll(o.Artifacts, 0o755); err != nil {
			return nil, err
		}
	}
	return e, e.makeImage(ctx, executable)
}

const containerPrefix = "coracletest-"

// startTime is more than a container needs to be in the engine's list after it was asked for.
const startTime = time.Hour

// sweep removes the files of containers that were killed. The others have removed theirs.
func (e *engine) sweep(ctx context.Context) {
	entries, err := os.ReadDir(e.shared)
	if err != nil || len(entries) == 0 {
		return
	}
	if names, err := e.run(ctx, "ps", "--all", "--filter", "name="+containerPrefix, "--format", "{{.Names}}"); err != nil || names != "" {
		return // some are in use
	}
	for _, one := range entries {
		if info, err := one.Info(); err == nil && time.Since(info.ModTime()) > startTime {
			_ = os.RemoveAll(filepath.Join(e.shared, one.Name())) // another test may do the same
		}
	}
}

// findEngine returns the client of an engine that runs and can grant the privileges that nodes need.
func findEngine(ctx context.Context) (string, error) {
	for _, try := range [][]string{
		{"docker", "info", "--format", "{{.SecurityOptions}}"},
		{"podman", "info", "--format", "rootless={{.Host.Security.Rootless}}"},
	} {
		out, err := exec.CommandContext(ctx, try[0], try[1:]...).Output()
		if text := string(out); err == nil && !strings.Contains(text, "name=rootless") && !strings.Contains(text, "rootless=true") {
			return try[0], nil
		}
	}
	if runtime.GOOS == "linux" {
		return "", errors.New(`clusters need root, or a Docker engine that is not rootless and that this user can use: run the tests with "go test -exec sudo"`)
	}
	return "", fmt.Errorf("clusters need Linux, so on %s they need a Docker engine, or podman with a machine that is not rootless: start one of them", runtime.GOOS)
}

// run runs a command of the engine and returns its output without the line's end.
func (e *engine) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, e.program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", e.program, args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// makeImage makes an image of coracle alone, with this user as the owner of what coracle run writes for its caller.
func (e *engine) makeImage(ctx context.Context, executable string) error {
	sum, err := sumOf(executable)
	if err != nil {
		return err
	}
	e.image = fmt.Sprintf("coracletest:%s-%d", sum[:12], os.Getuid())
	if _, err := e.run(ctx, "image", "inspect", "--format", "{{.Id}}", e.image); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, e.program, "import", "-", e.image)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var said tail
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	err = errors.Join(writeImage(in, executable), in.Close())
	if errWait := cmd.Wait(); errWait != nil {
		return fmt.Errorf("%s import: %w: %s", e.program, errWait, said.String())
	}
	return err
}

// writeImage writes the files of the image.
func writeImage(to io.Writer, executable string) error {
	program, err := os.Open(executable)
	if err != nil {
		return err
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return err
	}
	id, group := os.Getuid(), os.Getgid()
	passwd := fmt.Sprintf("root:x:0:0:root:/root:/\ncaller:x:%d:%d::/tmp:/\n", id, group)
	groups := fmt.Sprintf("root:x:0:\ncaller:x:%d:\n", group)
	w := tar.NewWriter(to)
	for _, f := range []struct {
		tar.Header
		content io.Reader
	}{
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: "root/", Typeflag: tar.TypeDir, Mode: 0o700}, nil},
		{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))}, strings.NewReader(passwd)},
		{tar.Header{Name: "etc/group", Mode: 0o644, Size: int64(len(groups))}, strings.NewReader(groups)},
		{tar.Header{Name: "coracle", Mode: 0o755, Size: info.Size()}, program},
	} {
		if err := w.WriteHeader(&f.Header); err != nil {
			return err
		}
		if f.content != nil {
			if _, err := io.Copy(w, f.content); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// privileges are the fewest with which nodes work, see docs/docker.md. The devices are for privileged pods.
var privileges = []string{
	"--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined",
	"--device-cgroup-rule=a *:* rwm",
}

// command prepares coracle run in a container. The files of the options are mounted.
func (e *engine) command(o Options) *exec.Cmd {
	args := []string{"run", "--rm", "--interactive", "--name", e.container, "--hostname", "coracletest",
		"--publish", "127.0.0.1::" + containerAPI, "--volume", e.shared + ":/tmp",
		"--env", fmt.Sprintf("SUDO_UID=%d", os.Getuid())}
	args = append(args, privileges...)
	mount := func(from, under string, i int, options string) string {
		to := path.Join("/coracletest", fmt.Sprint(under, i), filepath.Base(from))
		args = append(args, "--volume", from+":"+to+options)
		return to
	}
	inside := o
	inside.Images, inside.Manifests = nil, nil
	for i, file := range o.Images {
		inside.Images = append(inside.Images, mount(file, "image", i, ":ro"))
	}
	for i, file := range o.Manifests {
		inside.Manifests = append(inside.Manifests, mount(file, "manifest", i, ":ro"))
	}
	if o.Config != "" {
		inside.Config = mount(o.Config, "config", 0, ":ro")
	}
	if o.Artifacts != "" {
		inside.Artifacts = mount(o.Artifacts, "artifacts", 0, "")
	}
	args = append(append(args, e.image, "/coracle"), inside.arguments()...)
	return exec.Command(e.program, append(args, "--listen", ":"+containerAPI)...)
}

// adopt makes the access from within the container one from this machine.
func (e *engine) adopt(ctx context.Context, a *access) error {
	published, err := e.run(ctx, "port", e.container, containerAPI+"/tcp")
	if err != nil {
		return err
	}
	gateway, err := e.run(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", e.container)
	if err != nil {
		return err
	}
	a.Machine = gateway
	local := func(inside string) string { return filepath.Join(e.shared, strings.TrimPrefix(inside, "/tmp/")) }
	for name, value := range a.Env {
		switch name {
		case "PATH":
			dirs := filepath.SplitList(value)
			a.Env[name] = os.Getenv(name) + string(filepath.ListSeparator) + local(dirs[len(dirs)-1])
		case "KUBECONFIG", "KUBECACHEDIR":
			a.Env[name] = local(value)
		}
	}
	a.Kubeconfig = local(a.Kubeconfig)
	text, err := os.ReadFile(a.Kubeconfig)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(strings.TrimSpace(published))
	if err != nil {
		return err
	}
	changed := strings.Replace(string(text), a.Server, "https://"+net.JoinHostPort(host, port), 1)
	return os.WriteFile(a.Kubeconfig, []byte(changed), 0o600)
}

// close removes the container if it is there still.
func (e *engine) close() {
	_, _ = e.run(context.Background(), "rm", "--force", "--volumes", e.container) // it is gone, as a rule
}
