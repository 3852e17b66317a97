package results

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// productVersion matches the line of PRODUCT.yaml that follows the cluster.
var productVersion = regexp.MustCompile(`(?m)^version:.*$`)

// productFile is PRODUCT.yaml for a directory, and the names of its fields that a person has to fill in. A file that is there, and in which
// something was changed, stays as it is but for the version.
func (r Run) productFile(dir string) (data []byte, missing []string, err error) {
	if data, err = r.newProduct(); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, productName)
	there, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	if len(there) > 0 {
		var old struct{ Version string }
		if err := yaml.Unmarshal(there, &old); err != nil {
			return nil, nil, fmt.Errorf("reading %s: %w; mend or remove it", path, err)
		}
		if untouched, err := (Run{Version: old.Version}).newProduct(); err != nil || !bytes.Equal(there, untouched) {
			data = productVersion.ReplaceAllLiteral(there, []byte("version: "+r.Version))
		}
	}
	var fields yaml.Node
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w; mend or remove it", path, err)
	}
	for _, document := range fields.Content {
		for i := 0; i+1 < len(document.Content); i += 2 {
			if strings.HasPrefix(document.Content[i+1].Value, Placeholder) {
				missing = append(missing, document.Content[i].Value)
			}
		}
	}
	return data, missing, nil
}

// newProduct is PRODUCT.yaml with placeholders.
func (r Run) newProduct() ([]byte, error) {
	name, repository, kind, description := "", "", "", ""
	documentation := ""
	if r.ours() {
		name, repository = "coracle", "https://github.com/coracle-dev/coracle"
		documentation = repository + "/tree/" + r.Version + "/docs"
		kind, description = "distribution", "Kubernetes in one executable."
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, field := range []struct{ name, value, fill string }{
		{"vendor", "", "the legal entity whose participation form the CNCF has"},
		{"name", name, "the product's name"},
		{"version", r.Version, ""},
		{"website_url", "", "page about the product"},
		{"repo_url", repository, "repository with the source; leave the line out if it is not open"},
		{"documentation_url", documentation, "page of the documentation"},
		{"product_logo_url", "", "SVG, AI or EPS file with the product's name in it; leave the line out to use the vendor's"},
		{"type", kind, "distribution, hosted platform or installer"},
		{"description", description, "one sentence"},
		{"contact_email_address", "", "where the CNCF reaches the vendor"},
	} {
		root.Content = append(root.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: field.name},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: cmp.Or(field.value, Placeholder+field.fill)})
	}
	return yaml.Marshal(root)
}
