package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// component is pkg/machine/payload's Component: one line of `coracle version`.
type component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// modules are the Go modules whose versions are printed, under their common name.
var modules = []struct{ name, path, dir string }{
	{"Kubernetes", "k8s.io/kubernetes", "."},
	{"etcd", "go.etcd.io/etcd/server/v3", "."},
	{"containerd", "github.com/containerd/containerd/v2", "."},
	{"runc", "github.com/opencontainers/runc", "scripts/bundle"},
	{"CNI plugins", "github.com/containernetworking/plugins", "."},
	{"flannel", "github.com/flannel-io/flannel", "."},
	{"CoreDNS", "github.com/coredns/coredns", "."},
	{"metrics-server", "sigs.k8s.io/metrics-server", "."},
	{"Helm", "helm.sh/helm/v4", "."},
	{"crictl", "sigs.k8s.io/cri-tools", "."},
}

// packages are the Debian packages whose programs are in the payload, under their common name.
var packages = []struct{ name, pkg string }{
	{"nftables", "nftables"},
	{"libseccomp", "libseccomp-dev"},
	{"BusyBox", "busybox-static"},
}

// writeVersions writes the list of the payload's parts. debian is the root of the Debian system that they were taken
// from.
func writeVersions(root, debian, pause, out string) error {
	list := []component{}
	for _, m := range modules {
		version, err := moduleVersion(filepath.Join(root, m.dir), m.path)
		if err != nil {
			return err
		}
		list = append(list, component{m.name, version})
	}
	for _, p := range packages {
		version, err := packageVersion(debian, p.pkg)
		if err != nil {
			return err
		}
		list = append(list, component{p.name, version})
	}
	list = append(list, component{"pause", pause}, component{"Go", strings.TrimPrefix(runtime.Version(), "go")})
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

func moduleVersion(dir, path string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}", path)
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding the version of %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// packageVersion reads a Debian package's version, without epoch and packaging suffixes.
func packageVersion(debian, name string) (string, error) {
	status, err := os.ReadFile(filepath.Join(debian, "var/lib/dpkg/status"))
	if err != nil {
		return "", err
	}
	for stanza := range strings.SplitSeq(string(status), "\n\n") {
		lines := strings.Split(stanza, "\n")
		if lines[0] != "Package: "+name {
			continue
		}
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Version: ") })
		if i < 0 {
			break
		}
		return strings.TrimPrefix(lines[i], "Version: "), nil
	}
	return "", fmt.Errorf("package %s is not installed in %s", name, debian)
}
