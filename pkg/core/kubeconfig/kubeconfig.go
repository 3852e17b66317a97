// Package kubeconfig writes and merges kubeconfig files without client-go, so that the front can do it too.
// It knows the few fields that coracle writes; whatever else a file of the user's holds passes through untouched.
package kubeconfig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// DefaultName is the name of the context, the cluster and the user that coracle writes.
const DefaultName = "coracle"

// Access is one way into a cluster: everything that a kubeconfig with a single context says.
type Access struct {
	// Name names context and cluster; the user too, unless User is set.
	Name string
	// User names the user. Empty is Name.
	User string
	// Server is the apiserver's URL.
	Server string
	// CA, Cert and Key are where the PEM data comes from.
	CA, Cert, Key Source
}

// Source is PEM data: embedded, or in a file that clients read again when it changes. Exactly one field is set.
type Source struct {
	File string
	Data []byte
}

// file mirrors the fields of upstream's v1 Config that coracle writes.
type file struct {
	APIVersion     string         `yaml:"apiVersion"`
	Kind           string         `yaml:"kind"`
	Clusters       []namedCluster `yaml:"clusters"`
	Users          []namedUser    `yaml:"users"`
	Contexts       []namedContext `yaml:"contexts"`
	CurrentContext string         `yaml:"current-context"`
}

type namedCluster struct {
	Name    string  `yaml:"name"`
	Cluster cluster `yaml:"cluster"`
}

type cluster struct {
	Server string `yaml:"server"`
	CAFile string `yaml:"certificate-authority,omitempty"`
	CAData string `yaml:"certificate-authority-data,omitempty"`
}

type namedUser struct {
	Name string `yaml:"name"`
	User user   `yaml:"user"`
}

type user struct {
	CertFile string `yaml:"client-certificate,omitempty"`
	CertData string `yaml:"client-certificate-data,omitempty"`
	KeyFile  string `yaml:"client-key,omitempty"`
	KeyData  string `yaml:"client-key-data,omitempty"`
}

type namedContext struct {
	Name    string      `yaml:"name"`
	Context contextBody `yaml:"context"`
}

type contextBody struct {
	Cluster string `yaml:"cluster"`
	User    string `yaml:"user"`
}

// Encode returns a kubeconfig with a's context as its only and current one.
func Encode(a Access) ([]byte, error) {
	return encodeYAML(a.file())
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

func (a Access) file() file {
	if a.User == "" {
		a.User = a.Name
	}
	return file{
		APIVersion:     "v1",
		Kind:           "Config",
		Clusters:       []namedCluster{{a.Name, cluster{Server: a.Server, CAFile: a.CA.File, CAData: encode(a.CA)}}},
		Contexts:       []namedContext{{a.Name, contextBody{Cluster: a.Name, User: a.User}}},
		Users:          []namedUser{{a.User, user{CertFile: a.Cert.File, CertData: encode(a.Cert), KeyFile: a.Key.File, KeyData: encode(a.Key)}}},
		CurrentContext: a.Name,
	}
}

func encode(s Source) string { return base64.StdEncoding.EncodeToString(s.Data) }
