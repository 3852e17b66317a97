package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
	"github.com/coracle-dev/coracle/pkg/diagnose/supportbundle"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// Limits of a bundle: the time of one collector and of the API's first answer, the bytes of one file and of all files before
// compression.
const (
	bundleTimeout    = 15 * time.Second
	bundleAPITimeout = 8 * time.Second
	bundleFile       = 8 << 20
	bundleMost       = 128 << 20
)

// supportBundleCommand collects information about a problem in one file.
func supportBundleCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "support-bundle",
		Long: `Collect information about a problem in one compressed archive: logs, the state of coracle's components, configuration,
events and objects of the cluster, etcd, containerd, and facts about the machine. Its README.txt lists the files, and what
is missing and why. The command also works when components hang or coracle does not run.

Secrets are removed: objects of kind Secret and values of pods' variables are not collected, and all files are searched for
the tokens, keys and passwords of this machine and the cluster, and for text that looks like one. Logs of pods are not
collected. Look through the archive before you share it.

It needs root.`,
		Example: `# A file in this directory
coracle support-bundle

# From another machine, whose disk is full
ssh root@server-1 coracle support-bundle --output - > server-1.tar.gz

# Only this machine, and logs of the last week
coracle support-bundle --no-cluster --since 168h`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	path := c.Flags().String("output", "", "File to write, - for standard output (default coracle-support-HOST-TIME.tar.gz)")
	since := c.Flags().Duration("since", 24*time.Hour, "How far back logs go")
	noCluster := c.Flags().Bool("no-cluster", false, "Do not ask the cluster's API")
	_ = c.MarkFlagFilename("output", "gz")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root can read everything that is collected: use sudo")
		}
		if *since <= 0 {
			return exitcode.Usagef("--since: %s is not longer than nothing", *since)
		}
		return makeBundle(c.Context(), here(), *path, *since, *noCluster)
	}
	return interruptible(c)
}

func makeBundle(ctx context.Context, i installation, path string, since time.Duration, noCluster bool) error {
	now := time.Now()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := "coracle-support-" + host + "-" + now.UTC().Format("20060102-150405")
	out, path, err := bundleFileFor(path, name)
	if err != nil {
		return err
	}
	done := func(err error) error {
		if path != "-" && err != nil {
			os.Remove(path)
		}
		return err
	}
	sources, notes, err := i.bundleSources(ctx, now.Add(-since), noCluster)
	if err != nil {
		return done(err)
	}
	bundle := supportbundle.Bundle{
		Name: name, Made: now, Title: "Support bundle of coracle " + version.Version + " on " + host + ".",
		Redactor: sources.Redactor, Timeout: bundleTimeout, AtOnce: 4, MaxFile: bundleFile, Max: bundleMost, Notes: notes,
	}
	outcomes, err := bundle.Write(ctx, out, sources.Collectors())
	if err = errors.Join(err, out.Close()); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return done(err)
	}
	return sayBundle(path, outcomes, notes)
}

// bundleFileFor opens the bundle's file, which only root can read.
func bundleFileFor(path, name string) (io.WriteCloser, string, error) {
	switch path {
	case "-":
		return os.Stdout, path, nil
	case "":
		path = name + ".tar.gz"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, "", fmt.Errorf("%s is there already: choose another --output", path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("making the bundle: %w", err)
	}
	return f, path, nil
}

// bundleSources finds the sources of the bundle. notes name those that are missing, and why.
func (i installation) bundleSources(ctx context.Context, since time.Time, noCluster bool) (s supportbundle.Sources, notes []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return s, nil, fmt.Errorf("finding coracle's own file: %w", err)
	}
	bin := filepath.Dir(self)
	s = supportbundle.Sources{
		Dirs: i.dirs, Config: i.config, Self: self, Since: since,
		Env: []string{"CORACLE_DATA_DIR=" + i.dirs.Data, "CORACLE_RUN_DIR=" + i.dirs.Run,
			"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin:" + filepath.Join(bin, "busybox.d")},
	}
	entries, err := ledger.Open(i.dirs).Entries()
	if err != nil {
		notes = append(notes, err.Error())
	}
	for _, e := range entries {
		if e.Kind == ledger.NFTTable {
			s.Tables = append(s.Tables, e.Name)
		}
	}
	known := supportbundle.Known(i.dirs, i.config, os.Environ())
	if noCluster {
		notes = append(notes, "the cluster was not asked, as --no-cluster says")
	} else {
		var values []string
		if s.API, s.AsNode, values, err = i.bundleAPI(ctx); err != nil {
			notes = append(notes, "cluster: "+err.Error())
		}
		if s.AsNode != "" {
			notes = append(notes, "cluster: an agent sees its own node and pods only; make a bundle on a server, too")
		}
		known = append(known, values...)
	}
	s.Redactor = redact.New(known...)
	return s, notes, nil
}

// bundleAPI returns access to the cluster and the values of its Secrets. Without an administrator's kubeconfig it is the
// kubelet's access, which can read no Secrets, and asNode is the node's name.
func (i installation) bundleAPI(ctx context.Context) (access *rest.Config, asNode string, values []string, err error) {
	file := i.kubeconfig()
	if kubelets := i.dirs.NodeConfig("kubelet.kubeconfig"); !readable(file) && readable(kubelets) {
		file, asNode = kubelets, i.config.Node.Name
	}
	if access, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		return nil, "", nil, fmt.Errorf("it was not asked: %w", err)
	}
	access.QPS, access.Burst = 50, 50
	if asNode != "" {
		return access, asNode, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bundleAPITimeout)
	defer cancel()
	if values, err = supportbundle.Secrets(ctx, access); err != nil {
		return nil, "", values, fmt.Errorf("it was not asked for anything else: %w", err)
	}
	return access, "", values, nil
}

// sayBundle prints where the file is, and how much is missing in it.
func sayBundle(path string, outcomes []supportbundle.Outcome, notes []string) error {
	missing := len(notes)
	for _, o := range outcomes {
		missing += len(o.Notes)
	}
	size := "the bundle is written"
	if info, err := os.Stat(path); err == nil && path != "-" {
		size = fmt.Sprintf("%s has %d KiB", path, max(info.Size()>>10, 1))
	}
	if missing > 0 {
		size += fmt.Sprintf("; %d things are missing; its README.txt lists them with the reasons", missing)
	}
	_, err := fmt.Fprintln(os.Stderr, size)
	return err
}
