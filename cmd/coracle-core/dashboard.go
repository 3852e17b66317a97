package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/diagnose/dashboard"
	"github.com/coracle-dev/coracle/pkg/diagnose/doctor"
	"github.com/coracle-dev/coracle/pkg/diagnose/status"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

type dashboardOptions struct {
	kubeconfig, context string
	port                uint16
	listen, cert, key   string
	tokenFile           string
	names               []string
	readOnly, open      bool
}

// dashboardCommand serves the page that shows the cluster.
func dashboardCommand() *cobra.Command {
	var o dashboardOptions
	c := &cobra.Command{
		Use: "dashboard",
		Long: `Serve a page that shows the cluster, until you press Ctrl+C: a live picture, nodes, workloads, pods with logs and a
terminal, routes, add-ons, backups. Everything on it is a call of the API that kubectl could make, with the rights of the
kubeconfig that kubectl would use; Secrets are not shown. Run as root on a server, it also shows coracle status and doctor.

It serves on the loopback interface, to whoever has the address that it prints. From another machine, forward its port:
ssh -t -L 8443:127.0.0.1:8443 SERVER coracle dashboard --port 8443

With --listen it serves TLS to other machines, with a token in the address, and shows only, unless --read-only=false.
docs/dashboard.md says more.`,
		Example: `# Look at the cluster that kubectl uses
coracle dashboard

# With the rights of somebody else
coracle dashboard --kubeconfig viewer.yaml

# For a screen on the wall, with an address that stays
coracle dashboard --listen 192.0.2.10:8443 --token-file /etc/coracle/dashboard.token`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig whose rights the page has (default is the one that coracle kubectl uses)")
	c.Flags().StringVar(&o.context, "context", "", "Context of the kubeconfig")
	c.Flags().BoolVar(&o.open, "open", false, "Open the page in the browser of this desktop")
	c.Flags().Uint16Var(&o.port, "port", 0, "Port on the loopback interface (default is a free one)")
	c.Flags().StringVar(&o.listen, "listen", "", "Serve TLS to other machines on this address, as HOST:PORT")
	c.Flags().StringVar(&o.tokenFile, "token-file", "", "With --listen, a file with the token of the address (default is a new one at each start)")
	c.Flags().StringVar(&o.cert, "tls-cert-file", "", "With --listen, the certificate with its chain (default is a self-signed one)")
	c.Flags().StringVar(&o.key, "tls-private-key-file", "", "With --listen, the certificate's key")
	c.Flags().StringSliceVar(&o.names, "name", nil, "With --listen, names under which browsers reach it, besides the machine's and addresses")
	c.Flags().BoolVar(&o.readOnly, "read-only", false, "Refuse every change, whatever the kubeconfig may do (default is true with --listen)")
	for _, name := range []string{"kubeconfig", "token-file", "tls-cert-file", "tls-private-key-file"} {
		_ = c.MarkFlagFilename(name)
	}
	c.MarkFlagsMutuallyExclusive("port", "listen")
	c.MarkFlagsMutuallyExclusive("open", "listen")
	c.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("read-only") {
			o.readOnly = o.listen != ""
		}
		return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), here())
	}
	return interruptible(c)
}

func (o *dashboardOptions) run(ctx context.Context, out, complaints io.Writer, here installation) error {
	if o.listen == "" && (o.tokenFile != "" || o.cert != "" || len(o.names) > 0) {
		return exitcode.Usagef("--token-file, --tls-cert-file and --name are for --listen")
	}
	server, err := o.server(here)
	if err != nil {
		return err
	}
	var listeners []net.Listener
	var certificate dashboard.Certificate
	url := ""
	if o.listen == "" {
		if listeners, err = dashboard.Loopback(o.port); err != nil {
			return err
		}
		// A cookie is sent to every port of its host, and so to other users of this machine. This host has one port only.
		host := "coracle-" + strings.ToLower(strings.NewReplacer("_", "0", "-", "1").Replace(dashboard.NewSecret()[:24])) + ".localhost"
		server.Hosts = []string{host}
		url = fmt.Sprintf("http://%s:%d/#%s", host, listeners[0].Addr().(*net.TCPAddr).Port, server.Secret)
	} else {
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return fmt.Errorf("opening %s: %w", o.listen, err)
		}
		listeners = []net.Listener{l}
		if certificate, err = o.certificate(out, server); err != nil {
			return err
		}
		url = fmt.Sprintf("https://%s/#%s", o.address(l.Addr().(*net.TCPAddr)), o.shown(server.Secret))
		server.Reports = nil // strangers do not make root run something
	}
	fmt.Fprintf(out, "The cluster %s is at\n\n    %s\n\n%sWhoever has this address can %s. Stop with Ctrl+C.\n", server.Facts.Server, url, o.hint(), o.can())
	if o.open {
		var opened sync.WaitGroup
		defer opened.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		opened.Go(func() {
			if err := openBrowser(ctx, url); err != nil {
				fmt.Fprintf(complaints, "Open the address yourself: %v\n", err)
			}
		})
	}
	return server.Serve(ctx, listeners, certificate)
}

func (o *dashboardOptions) can() string {
	if o.readOnly {
		return "see what your kubeconfig may see, except Secrets"
	}
	return "do what your kubeconfig may do"
}

// server is the page with the rights of a kubeconfig.
func (o *dashboardOptions) server(here installation) (*dashboard.Server, error) {
	config, loader, err := clientConfig(here, o.kubeconfig, o.context)
	if err != nil {
		return nil, err
	}
	page := o.pageDir()
	if _, err := os.Stat(filepath.Join(page, "index.html")); err != nil {
		return nil, fmt.Errorf("this build has no dashboard, which scripts/build adds: %w", err)
	}
	s := &dashboard.Server{API: config, Page: os.DirFS(page), Secret: dashboard.NewSecret(), ReadOnly: o.readOnly, Reports: o.reports(here)}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	name := o.context
	if name == "" {
		name = raw.CurrentContext
	}
	space, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	s.Facts = dashboard.Facts{Version: version.Version, Context: name, Namespace: space, Server: config.Host}
	if o.tokenFile != "" {
		if s.Secret, err = tokenOf(o.tokenFile); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// pageDir is where the payload has the page.
func (o *dashboardOptions) pageDir() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(path), "dashboard")
}

// reports are what root of a machine with a coracle can see of it.
func (o *dashboardOptions) reports(here installation) map[string]dashboard.Report {
	if os.Geteuid() != 0 || here.config.Role == "" || o.kubeconfig != "" {
		return nil
	}
	return map[string]dashboard.Report{
		"status": func(ctx context.Context) (any, error) { return statusReport(ctx, here) },
		"doctor": func(ctx context.Context) (any, error) {
			d := &doctor.Doctor{Config: here.whole(), Environ: os.Environ(), Addons: addons.All()}
			return check.Run(ctx, d.Probes(), check.Limit{Answer: doctor.Limit}), nil
		},
	}
}

// statusReport collects what coracle status prints.
func statusReport(ctx context.Context, i installation) (status.Report, error) {
	from := status.Sources{Dirs: i.dirs, Config: i.config, Disk: func() []string { return check.Disk(i.dirs) }}
	// Agents have no administrator's kubeconfig, but the kubelet's can read the node.
	if kubeconfig := i.dirs.NodeConfig("kubelet.kubeconfig"); readable(kubeconfig) && i.config.Node.Name != "" {
		from.Node, from.Services = status.AskAPI(kubeconfig, i.config.Node.Name), status.Services(i.config)
	}
	return status.Collect(ctx, from)
}
