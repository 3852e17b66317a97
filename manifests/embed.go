// Package manifests holds the objects that coracle puts into every cluster, and fills in what depends on a cluster's
// settings. Package pkg/addons/manifests applies them.
//
// A file with the name of an add-on belongs to it: dns.yaml is left out with --disable dns. cis.yaml is for --profile=cis,
// gateway-acme.yaml for --acme-email. Most add-ons have their file in their own folder.
package manifests

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

//go:embed *.yaml
var files embed.FS

// File is a manifest. Render fills in its variables.
type File struct {
	Name string // dns.yaml
	Data []byte
}

// Render returns the files of this package and the given files of add-ons, without those of disabled add-ons and with
// their variables filled in, sorted by name.
func Render(cfg config.Config, addons ...File) ([]File, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := slices.Clone(addons)
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, File{Name: name, Data: data})
	}
	all = slices.DeleteFunc(all, func(f File) bool {
		return cfg.Disabled(strings.TrimSuffix(f.Name, ".yaml")) || f.Name == "cis.yaml" && !cfg.Security.CIS() ||
			f.Name == "gateway-acme.yaml" && (!cfg.ACME.Enabled() || cfg.Disabled("gateway"))
	})
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	values := variables(cfg.Network, cfg.API.LocalStorage)
	for i := range all {
		if all[i], err = all[i].fill(values); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Corefile returns the Corefile that a new cluster gets.
func Corefile(network config.Network) (string, error) {
	data, err := files.ReadFile("dns.yaml")
	if err != nil {
		return "", err
	}
	file, err := File{Name: "dns.yaml", Data: data}.fill(variables(network, ""))
	if err != nil {
		return "", err
	}
	for _, doc := range bytes.Split(file.Data, []byte("\n---\n")) {
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

// fill returns the file with its variables filled in. An unknown variable is an error.
func (f File) fill(values map[string]string) (File, error) {
	var unknown []string
	data := variable.ReplaceAllFunc(f.Data, func(found []byte) []byte {
		key := string(found[2 : len(found)-1])
		value, ok := values[key]
		if !ok {
			unknown = append(unknown, key)
		}
		return []byte(value)
	})
	if len(unknown) > 0 {
		return File{}, fmt.Errorf("manifest %s: unknown variables %s", f.Name, strings.Join(unknown, ", "))
	}
	return File{Name: f.Name, Data: data}, nil
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
