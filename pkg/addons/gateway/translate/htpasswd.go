package translate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PasswordSecrets returns the Secrets with passwords that Ingresses name, in their own namespaces.
func PasswordSecrets(served []*networkingv1.Ingress) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, i := range served {
		if name := i.Annotations[nginxPrefix+"auth-secret"]; name != "" {
			if key := SecretKey(i.Namespace, strings.TrimSpace(name)); key.Namespace == i.Namespace && IsSecretName(key.Name) {
				out[key] = true
			}
		}
	}
	return out
}

// IsSecretName reports whether a text can be the name of a Secret: others, of whatever length, do not get into requests to the API server.
func IsSecretName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// Passwords are the Secrets with passwords that Ingresses and policies name.
type Passwords struct {
	Secrets map[types.NamespacedName]*corev1.Secret
	// Unread says why a Secret that may be there is not read.
	Unread map[types.NamespacedName]string
}

// Hashes returns the hashes of the users' passwords in a Secret.
func (p Passwords) Hashes(key types.NamespacedName, byUser bool) (map[string]string, error) {
	secret := p.Secrets[key]
	switch why := p.Unread[key]; {
	case why != "":
		return nil, fmt.Errorf("Secret %s is not read: %s", key, why)
	case secret == nil:
		return nil, fmt.Errorf("there is no Secret %s", key)
	}
	hashes, err := Hashes(secret, byUser)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", key, err)
	}
	return hashes, nil
}

// passwordKey is the key of a Secret that has a file of htpasswd.
const passwordKey = "auth"

// maxUsers bounds the users of one Secret.
const maxUsers = 10000

// Hashes returns the hashes of the users' passwords in a Secret: in a file of htpasswd, or with the users as keys.
func Hashes(s *corev1.Secret, byUser bool) (map[string]string, error) {
	lines := []string{}
	if byUser {
		for _, user := range slices.Sorted(maps.Keys(s.Data)) {
			lines = append(lines, user+":"+string(s.Data[user]))
		}
	} else {
		file, ok := s.Data[passwordKey]
		if !ok {
			return nil, fmt.Errorf("it has no key %q", passwordKey)
		}
		lines = strings.Split(string(file), "\n")
	}
	out := map[string]string{}
	for n, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		user, hash, _ := strings.Cut(line, ":")
		hash, _, _ = strings.Cut(hash, ":") // a comment
		if user == "" || !hashLike.MatchString(hash) {
			return nil, fmt.Errorf("line %d is not a user with a hash of htpasswd -B (bcrypt), -m (MD5) or -s (SHA-1)", n+1)
		}
		out[user] = hash
	}
	if len(out) == 0 {
		return nil, errors.New("it has no users")
	}
	if len(out) > maxUsers {
		return nil, fmt.Errorf("it has more than %d users", maxUsers)
	}
	return out, nil
}

// hashLike is what hashes look like. A cost of bcrypt above 14 would take a second of CPU for each guess.
var hashLike = regexp.MustCompile(`^(\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}|\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|\{SHA\}[+/A-Za-z0-9]{27}=|\{SSHA\}[+/A-Za-z0-9]{32,}={0,2})$`)
