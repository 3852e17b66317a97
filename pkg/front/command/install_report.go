package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// report describes a finished installation to the user.
type report struct {
	in     *install.Installer
	wanted install.Spec
	done   install.Done
	where  where
	took   time.Duration
}

func (r report) print(ctx context.Context) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	record := r.done.Record
	switch {
	case r.in.Manager == nil:
		r.byHand(line)
	case r.done.Started, r.done.Upgraded:
		r.ready(ctx, line)
	case !r.wanted.Start:
		line("The service %s is installed and was not started. To start it: %s", record.Service, startCommand(r.in.Manager.Name(), record.Service))
	case r.done.Changed:
		line("The service %s has run on; what was missing of its installation is there again.", record.Service)
	default:
		line("%s is installed and runs already: nothing was changed.", record.Version)
	}
	for _, path := range r.done.Taken {
		line("%s is not coracle's: use coracle %s for coracle's own.", path, filepath.Base(path))
	}
	line("")
	line("  To take it off again    coracle-uninstall")
	fmt.Print(b.String())
}

// ready prints how to use a node that is Ready.
func (r report) ready(ctx context.Context, line func(string, ...any)) {
	cfg, ok, err := r.where.config()
	if err != nil || !ok {
		cfg = r.wanted.Config
	}
	record := r.done.Record
	line("")
	line("Node %s is Ready after %.1f s.", cfg.Node.Name, r.took.Seconds())
	line("")
	if cfg.Role == config.Server {
		line("  To use the cluster      kubectl get nodes      (%s)", r.kubectl())
		line("  Your own kubectl        export KUBECONFIG=%s", cfg.API.KubeconfigPath)
	} else {
		line("  Its cluster             %s", strings.Join(cfg.Join.Servers, ", "))
	}
	line("  How it is doing         coracle status")
	line("  The service             %s; its log: %s", record.Service, r.in.Manager.Log(record.Service))
	if cfg.Role == config.Server {
		r.join(ctx, cfg, line)
	}
}

// kubectl describes the program that the command kubectl runs.
func (r report) kubectl() string {
	for _, l := range r.done.Record.Links {
		if filepath.Base(l.Path) == "kubectl" {
			return "a link to coracle"
		}
	}
	return "or coracle kubectl; yours needs the next line"
}

// join prints how to join another machine. It makes a token only on a terminal, because logs would keep it.
func (r report) join(ctx context.Context, cfg config.Config, line func(string, ...any)) {
	line("")
	if !progress.IsTerminal(os.Stdout) {
		line("  To add a node           coracle token join-command prints what to do")
		return
	}
	token, err := makeToken(ctx, r.done.Record)
	if err != nil {
		line("  To add a node           coracle token join-command prints what to do")
		return
	}
	line("To add a node, paste this into a root shell on another machine. The token is a secret, and good for 24 hours.")
	line("")
	line("export CORACLE_URL=https://%s CORACLE_TOKEN=%s", cfg.API.Outside(), token)
	line("curl -sfL %s/install.sh | sh -      # or, where this file is: ./coracle install", installBase())
}

// installBase is the URL of the directory with install.sh.
func installBase() string {
	return strings.TrimSuffix(release.DefaultMirror, "/download") + "/latest/download"
}

// makeToken makes a token for agents. It is passed over a pipe, so that it is in no process list.
func makeToken(ctx context.Context, r install.Record) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Binary, "token", "create", "--description", "made by coracle install",
		"--data-dir", r.Dirs.Data, "--run-dir", r.Dirs.Run)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// startCommand is the command that starts a service.
func startCommand(manager, service string) string {
	if manager == "openrc" {
		return "rc-service " + service + " start"
	}
	return "systemctl start " + service
}

// byHand prints what to do on a machine whose init system is unknown.
func (r report) byHand(line func(string, ...any)) {
	record := r.done.Record
	line("")
	line("This machine's init system is neither systemd nor OpenRC, so that nothing starts coracle yet. Have it run this as root,")
	line("start it again when it ends with another code than 2, and stop it with SIGTERM to that process only:")
	line("")
	line("  set -a; . %s; exec %s", install.EnvironmentFile(record.Service),
		initsystem.ShellLine(append([]string{record.Binary, string(record.Role)}, record.Args...)))
	line("")
	line("  Is it ready?            coracle wait")
}
