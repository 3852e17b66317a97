// Package kubeconfig writes and merges kubeconfig files without client-go, so that the front can do it too.
// It knows the few fields that coracle writes, and keeps everything else in a user's file as it is.
package kubeconfig

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// DefaultName is the name of the context, the cluster and the user that coracle writes.
const DefaultName = "coracle"

// Access is the content of a kubeconfig with a single context.
type Access struct {
	// Name names context and cluster; the user too, unless User is set.
	Name string
	// User names the user. Empty is Name.
	User string
	// Server is the apiserver's URL.
	Server string
	// CA, Cert and Key are the sources of the PEM data.
	CA, Cert, Key Source
}

// Source is PEM data: embedded, or in a file that clients read again when it changes. Exactly one field is set.
type Source struct {
	File string
	Data []byte
}

// Encode returns a kubeconfig with a's context as its only and current one.
func Encode(a Access) ([]byte, error) {
	user := cmp.Or(a.User, a.Name)
	cluster, credentials := object{"server": a.Server}, object{}
	cluster.set("certificate-authority", a.CA)
	credentials.set("client-certificate", a.Cert)
	credentials.set("client-key", a.Key)
	return encodeYAML(object{
		"apiVersion": "v1", "kind": "Config", "current-context": a.Name,
		"clusters": list(a.Name, "cluster", cluster),
		"users":    list(user, "user", credentials),
		"contexts": list(a.Name, "context", object{"cluster": a.Name, "user": user}),
	})
}

func encodeYAML(v any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(v), e.Close()); err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return out.Bytes(), nil
}

// spellNulls writes null for the values without text within {...} and [...], which yaml.v3 would make empty strings. It returns n.
func spellNulls(n *yaml.Node, within bool) *yaml.Node {
	if within && n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		n.Value = "null"
	}
	for _, child := range n.Content {
		spellNulls(child, within || n.Style&yaml.FlowStyle != 0)
	}
	return n
}

// object is a YAML mapping.
type object map[string]any

// list returns a list of one entry, as those of a kubeconfig: with a name, and a body under a key.
func list(name, key string, body object) []object { return []object{{"name": name, key: body}} }

// set sets a key to a file name, or the key with the ending -data to content.
func (o object) set(key string, s Source) {
	if s.File != "" {
		o[key] = s.File
		return
	}
	o[key+"-data"] = base64.StdEncoding.EncodeToString(s.Data)
}
