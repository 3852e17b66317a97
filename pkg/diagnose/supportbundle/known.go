package supportbundle

import (
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// secretFile is the number of bytes that are read of a file with secrets.
const secretFile = 256 << 10

// Known reads the secrets of this machine, for the redactor: tokens, keys, and secret values of configuration files and of the
// environment. Files that cannot be read are skipped.
func Known(dirs paths.Dirs, cfg config.Config, environ []string) (values []string) {
	for _, variable := range environ {
		values = append(values, redact.Find(variable)...)
	}
	for _, name := range []string{dirs.Token(), dirs.AgentToken(), cfg.Join.TokenFile, cfg.Join.AgentTokenFile} {
		values = append(values, tokenValues(contentOf(name))...)
	}
	values = append(values, strings.TrimSpace(contentOf(cfg.API.SecretsPassphrase)))
	values = append(values, strings.Fields(contentOf(cfg.ACME.BindingFile))...)
	whole := matchingFiles(filepath.Join(dirs.Config, "*.env"), filepath.Join(dirs.NodePKI(), "*.key"), filepath.Join(dirs.PKI(), "*.key"),
		filepath.Join(dirs.PKI(), "etcd", "*.key"), filepath.Join(dirs.NodePKI(), "*.pem"))
	for _, name := range append(whole, cfg.Datastore.KeyFile) {
		text := contentOf(name)
		if strings.HasSuffix(name, ".env") {
			values = append(values, redact.Find(text)...)
			continue
		}
		values = append(values, keysOf(text))
	}
	fields := matchingFiles(filepath.Join(dirs.Config, "*.yaml"), filepath.Join(dirs.Config, "*.yaml.d", "*"), dirs.ServerConfig("*"), dirs.NodeConfig("*"),
		filepath.Join(dirs.Config, "certs.d", "*", "hosts.toml"))
	for _, name := range append(fields, cfg.API.EncryptionConfig, cfg.API.KubeconfigPath) {
		values = append(values, redact.Find(contentOf(name))...)
	}
	return values
}

// tokenValues returns a join token and its parts.
func tokenValues(text string) (values []string) {
	t, err := join.ParseToken(text)
	if err != nil {
		return []string{strings.TrimSpace(text)}
	}
	return []string{strings.TrimSpace(text), t.Secret, t.Bearer()}
}

// keysOf returns a file of certificates and keys without the certificates.
func keysOf(text string) string {
	for {
		before, rest, found := strings.Cut(text, "-----BEGIN CERTIFICATE-----")
		if !found {
			return text
		}
		_, after, _ := strings.Cut(rest, "-----END CERTIFICATE-----")
		text = before + after
	}
}

func contentOf(name string) string {
	if name == "" {
		return ""
	}
	data, err := tail(name, secretFile)
	if err != nil {
		return ""
	}
	return string(data)
}

func matchingFiles(patterns ...string) (out []string) {
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err == nil { // a directory whose name is no valid pattern is skipped
			out = append(out, found...)
		}
	}
	return out
}
