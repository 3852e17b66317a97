// Package controlplaneuser lets the control plane run as a user of its own that owns etcd's data and nothing else. Keys and
// configuration files stay root's: the front keeps copies of exactly those that the control plane reads, in a directory of root's in the
// run directory. What the control plane has to tell root it leaves as marks in a directory of its own; root follows no link there.
package controlplaneuser

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// ID is the id of the user and of its group. It needs no entry in /etc/passwd, which may be read-only, and is the same on each machine
// and in each container. No distribution and no part of systemd assigns the ids from 60706 to 61183, see
// https://systemd.io/UIDS-GIDS; Debian's policy assigns those from 60000 to 64999 one by one, and none of these.
const ID = 60971

// View returns the configuration as the control plane uses it: with the paths of the copies, if it runs as another user.
func View(cfg config.Config) config.Config {
	if cfg.ControlPlane.User == 0 {
		return cfg
	}
	cfg.Dirs.Copies = cfg.Dirs.CopiesFor()
	cfg.Args = maps.Clone(cfg.Args)
	for component, args := range cfg.Args {
		if !slices.Contains(components, component) {
			continue
		}
		cfg.Args[component] = slices.Clone(args)
		for i, arg := range args {
			cfg.Args[component][i] = withFiles(arg, cfg.Dirs.CopyOf)
		}
	}
	for _, file := range files(&cfg) {
		*file = cfg.Dirs.CopyOf(*file)
	}
	return cfg
}

// components are those of the control plane that have pass-through flags.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}

// files returns the settings of the control plane that name a file.
func files(cfg *config.Config) []*string {
	all := []*string{&cfg.API.AdmissionConfig, &cfg.API.SchedulerConfig, &cfg.API.EncryptionConfig, &cfg.API.AuditPolicy, &cfg.API.SecretsPassphrase,
		&cfg.ACME.CAFile, &cfg.ACME.BindingFile, &cfg.Datastore.CAFile, &cfg.Datastore.CertFile, &cfg.Datastore.KeyFile}
	return slices.DeleteFunc(all, func(file *string) bool { return *file == "" })
}

// filesIn returns the files that a pass-through flag names and that upstream reads.
func filesIn(arg string) (out []string) {
	withFiles(arg, func(file string) string {
		out = append(out, file)
		return file
	})
	return out
}

// withFiles returns a pass-through flag with other names for the files that it names and that upstream reads.
func withFiles(arg string, name func(file string) string) string {
	flag, value, found := strings.Cut(arg, "=")
	if !found || written(flag) {
		return arg
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		file, names, sni := strings.Cut(part, ":") // tls-sni-cert-key has names after the files
		if info, err := os.Stat(file); !filepath.IsAbs(file) || err != nil || !info.Mode().IsRegular() {
			continue
		}
		if parts[i] = name(file); sni {
			parts[i] += ":" + names
		}
	}
	return flag + "=" + strings.Join(parts, ",")
}

// written reports whether a flag names a file or a directory that upstream writes.
func written(name string) bool {
	name = strings.TrimLeft(name, "-")
	return strings.HasSuffix(name, "-dir") || strings.HasSuffix(name, "-log-path") || name == "log-file" || name == "log-outputs"
}

// source is a file, or a tree of files, of which the control plane gets a copy.
type source struct {
	from, to string
	wants    func(name string) bool                   // of a tree; nil for a file
	open     func(dir, name string) (*os.File, error) // of a tree
	// replaced says that files of the tree are replaced and never written in place, so that its directories tell of changes.
	replaced bool
}

// sources lists everything that the control plane may read of root's.
func sources(cfg config.Config) []source {
	root, copies := cfg.Dirs, cfg.Dirs
	copies.Copies = root.CopiesFor()
	of := func(path func(paths.Dirs) string) source { return source{from: path(root), to: path(copies)} }
	list := []source{
		of(paths.Dirs.Token), of(paths.Dirs.AgentToken), of(paths.Dirs.ServerCluster), of(paths.Dirs.Servers), of(paths.Dirs.Registries),
		of(paths.Dirs.ResetRequest), of(paths.Dirs.RekeyRequest),
	}
	for _, name := range []string{"node.crt", "node.key", "kubelet-client-current.pem"} { // by the keys the machine recognizes itself
		list = append(list, of(func(d paths.Dirs) string { return filepath.Join(d.NodePKI(), name) }))
	}
	keys, kubeconfigs := of(paths.Dirs.PKI), of(func(d paths.Dirs) string { return filepath.Dir(d.ServerConfig("x")) })
	keys.wants, keys.open = suffix(".crt", ".key", ".pub"), follow
	kubeconfigs.wants, kubeconfigs.open = suffix(".kubeconfig"), follow
	keys.replaced, kubeconfigs.replaced = true, true // by coracle itself
	manifests, charts := of(paths.Dirs.ManifestsToRead), of(paths.Dirs.ChartsToRead)
	manifests.wants, manifests.open = suffix(".yaml", ".yml", ".json", ".skip"), follow
	charts.wants, charts.open = func(string) bool { return true }, within // a link out of the directory is none of the charts
	list = append(list, keys, kubeconfigs, manifests, charts)
	for _, file := range files(&cfg) {
		list = append(list, source{from: *file, to: copies.CopyOf(*file)})
	}
	for _, component := range components {
		for _, arg := range cfg.Args[component] {
			for _, file := range filesIn(arg) {
				list = append(list, source{from: file, to: copies.CopyOf(file)})
			}
		}
	}
	return list
}

func suffix(any ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(any, strings.ToLower(filepath.Ext(name))) }
}

func follow(dir, name string) (*os.File, error) { return open(filepath.Join(dir, name)) }

func within(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// Pending reports whether there is a request in a file of root's, by its path in d, which is not done.
func Pending(d paths.Dirs, request string) bool {
	return paths.Exists(request) && (d.Copies == "" || !paths.Exists(d.Done(request)))
}

// Finish notes that the request in a file of root's is done, by its path in d: the file is removed, or the front removes it.
func Finish(d paths.Dirs, request string) error {
	if d.Copies != "" {
		return atomicfile.Write(d.Done(request), nil, 0o600)
	}
	if err := os.Remove(request); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
