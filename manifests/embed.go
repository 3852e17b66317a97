// Package manifests holds the objects that coracle puts into every cluster, and fills in what depends on a cluster's
// settings. Who applies them is package pkg/addons/manifests.
//
// A file that has the name of a service of --disable is that service's: dns.yaml goes with --disable dns.
package manifests

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

//go:embed *.yaml
var files embed.FS

// File is a manifest with its variables filled in.
type File struct {
	Name string // dns.yaml
	Data []byte
}

// Render returns the files of all services that are not disabled, sorted by name.
func Render(cfg config.Config) ([]File, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out []File
	for _, name := range names {
		if cfg.Disabled(strings.TrimSuffix(name, ".yaml")) {
			continue
		}
		data, err := render(name, variables(cfg.Network, cfg.API.LocalStorage))
		if err != nil {
			return nil, err
		}
		out = append(out, File{Name: name, Data: data})
	}
	return out, nil
}

// Corefile returns the Corefile that a new cluster gets.
func Corefile(network config.Network) (string, error) {
	data, err := render("dns.yaml", variables(network, ""))
	if err != nil {
		return "", err
	}
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal(doc, &object); err != nil {
			return "", fmt.Errorf("reading dns.yaml: %w", err)
		}
		if corefile, ok := object.Data[clusterdns.Key]; ok {
			return corefile, nil
		}
	}
	return "", fmt.Errorf("dns.yaml has no %s", clusterdns.Key)
}

// render fills in a file's variables. An unknown one is an error.
func render(name string, values map[string]string) ([]byte, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var unknown []string
	data = variable.ReplaceAllFunc(data, func(found []byte) []byte {
		key := string(found[2 : len(found)-1])
		value, ok := values[key]
		if !ok {
			unknown = append(unknown, key)
		}
		return []byte(value)
	})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("manifest %s: unknown variables %s", name, strings.Join(unknown, ", "))
	}
	return data, nil
}

var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// variables are what a manifest may use as ${NAME}.
func variables(network config.Network, localStorage string) map[string]string {
	var addrs, families []string
	for _, addr := range network.DNS {
		addrs = append(addrs, quote(addr.String()))
		families = append(families, family(addr))
	}
	values := map[string]string{
		"CLUSTER_DNS_ALL":  strings.Join(addrs, ", "),
		"CLUSTER_DOMAIN":   network.Domain,
		"DNS_PORT":         fmt.Sprint(clusterdns.Port),
		"IP_FAMILIES":      strings.Join(families, ", "),
		"IP_FAMILY_POLICY": "SingleStack",

		"LOCAL_STORAGE_PATH": jsonText(localStorage),
	}
	if len(addrs) > 0 {
		values["CLUSTER_DNS"] = addrs[0]
	}
	if len(addrs) > 1 {
		values["IP_FAMILY_POLICY"] = "RequireDualStack"
	}
	return values
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// jsonText is what stands between the quotes of a JSON string.
func jsonText(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(data[1 : len(data)-1])
}

func quote(s string) string { return `"` + s + `"` }
