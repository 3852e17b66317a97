package endpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	bootstrap "k8s.io/cluster-bootstrap/token/api"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Token is a Kubernetes bootstrap token for joining: a Secret in kube-system.
type Token struct {
	ID     string // 6 of a-z and 0-9
	Secret string // 16 of them
	// Role is the role with which a machine can join. A token for servers is valid for agents too.
	Role config.Role
	// Replace allows a machine to take another machine's node name.
	Replace     bool
	Description string
	Expires     time.Time // zero is never
	// From is the node name of the server that was started with the token, "" for other tokens.
	From string
}

// Annotations of tokens' Secrets.
const (
	// fromAnnotation is the node name of the server whose --token or --agent-token it is.
	fromAnnotation = "coracle.io/token-from"
	// retiredAnnotation is the hash of the secret that such a token had before it was rotated. The server may still be started with
	// that secret.
	retiredAnnotation = "coracle.io/token-retired"
)

// groups maps roles to the groups of their tokens.
var groups = map[config.Role]string{config.Agent: join.GroupAgent, config.Server: join.GroupServer}

// Object returns the token as a Secret.
func (t Token) Object() *corev1.Secret {
	in := []string{groups[t.Role]}
	if t.Replace {
		in = append(in, join.GroupReplace)
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstrap.BootstrapTokenSecretPrefix + t.ID, Namespace: metav1.NamespaceSystem},
		Type:       bootstrap.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrap.BootstrapTokenIDKey:               []byte(t.ID),
			bootstrap.BootstrapTokenSecretKey:           []byte(t.Secret),
			bootstrap.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrap.BootstrapTokenExtraGroupsKey:      []byte(strings.Join(in, ",")),
		},
	}
	if t.Description != "" {
		s.Data[bootstrap.BootstrapTokenDescriptionKey] = []byte(t.Description)
	}
	if !t.Expires.IsZero() {
		s.Data[bootstrap.BootstrapTokenExpirationKey] = []byte(t.Expires.UTC().Format(time.RFC3339))
	}
	if t.From != "" {
		s.Annotations = map[string]string{fromAnnotation: t.From}
	}
	return s
}

// TokenOf decodes a Secret. ok is false if it is not a token for joining.
func TokenOf(s *corev1.Secret) (t Token, ok bool) {
	if s.Type != bootstrap.SecretTypeBootstrapToken || string(s.Data[bootstrap.BootstrapTokenUsageAuthentication]) != "true" {
		return Token{}, false
	}
	t = Token{
		ID: string(s.Data[bootstrap.BootstrapTokenIDKey]), Secret: string(s.Data[bootstrap.BootstrapTokenSecretKey]),
		Description: string(s.Data[bootstrap.BootstrapTokenDescriptionKey]),
		From:        s.Annotations[fromAnnotation],
	}
	in := strings.Split(string(s.Data[bootstrap.BootstrapTokenExtraGroupsKey]), ",")
	for _, role := range []config.Role{config.Agent, config.Server} {
		if slices.Contains(in, groups[role]) {
			t.Role = role
		}
	}
	t.Replace = slices.Contains(in, join.GroupReplace)
	if text := string(s.Data[bootstrap.BootstrapTokenExpirationKey]); text != "" {
		var err error
		if t.Expires, err = time.Parse(time.RFC3339, text); err != nil {
			t.Expires = time.Unix(0, 0) // an invalid time means expired, as in Kubernetes
		}
	}
	return t, t.Role != ""
}

// Expired reports whether the token has expired.
func (t Token) Expired() bool { return !t.Expires.IsZero() && !time.Now().Before(t.Expires) }

// GivenTokens reads the tokens with which this server was started, for other machines to join with.
func GivenTokens(dirs paths.Dirs) ([]Token, error) {
	var all []Token
	for _, given := range []struct {
		file string
		as   Token
	}{
		{dirs.Token(), Token{Role: config.Server, Description: "--token of the servers"}},
		{dirs.AgentToken(), Token{Role: config.Agent, Description: "--agent-token of the servers"}},
	} {
		t, err := join.ReadToken(given.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		given.as.ID, given.as.Secret = t.ID, t.Secret
		all = append(all, given.as)
	}
	return all, nil
}

// StartedWith creates the tokens with which the named server was started, and deletes those of its earlier starts. A token that was
// rotated since is not changed.
func StartedWith(ctx context.Context, client kubernetes.Interface, server string, tokens []Token, log logrus.FieldLogger) error {
	old, err := Tokens(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range old {
		same := func(n Token) bool { return n.ID == t.ID }
		if t.From != server || slices.ContainsFunc(tokens, same) {
			continue
		}
		if err := Remove(ctx, client, t.ID); err != nil && !errors.Is(err, ErrNoToken) {
			return err
		}
		log.Infof("deleted token %s: this server was started without it", t.ID)
	}
	for _, t := range tokens {
		t.From = server
		if err := ensure(ctx, client, t, log); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates or updates the token's Secret.
func ensure(ctx context.Context, client kubernetes.Interface, t Token, log logrus.FieldLogger) error {
	secrets, want := client.CoreV1().Secrets(metav1.NamespaceSystem), t.Object()
	have, err := secrets.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = secrets.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // another server was started with the same token
		}
	case err == nil && have.Annotations[retiredAnnotation] == fingerprint(t.Secret):
		log.Warnf("the token with which this server was started is invalid, because it was rotated: start the server with the new text of token %s", t.ID)
		return nil
	case err == nil && maps.EqualFunc(have.Data, want.Data, slices.Equal[[]byte]):
		return nil
	case err == nil:
		have = have.DeepCopy()
		have.Data, have.Annotations = want.Data, want.Annotations
		_, err = secrets.Update(ctx, have, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing token %s: %w", t.ID, err)
	}
	return nil
}

func fingerprint(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Create creates a token. It must not exist.
func Create(ctx context.Context, client kubernetes.Interface, t Token) error {
	if _, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, t.Object(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a token: %w", err)
	}
	return nil
}

// Rotate replaces a token's secret and returns the token. The old secret becomes invalid, even if a server is still started with
// it.
func Rotate(ctx context.Context, client kubernetes.Interface, id, secret string) (Token, error) {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	have, err := secrets.Get(ctx, bootstrap.BootstrapTokenSecretPrefix+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = ErrNoToken
	}
	if err != nil {
		return Token{}, fmt.Errorf("rotating token %s: %w", id, err)
	}
	t, ok := TokenOf(have)
	if !ok {
		return Token{}, fmt.Errorf("rotating token %s: it is a bootstrap token for another purpose than joining", id)
	}
	have = have.DeepCopy()
	have.Data[bootstrap.BootstrapTokenSecretKey] = []byte(secret)
	if t.From != "" && have.Annotations[retiredAnnotation] == "" {
		have.Annotations[retiredAnnotation] = fingerprint(t.Secret)
	}
	if _, err := secrets.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return Token{}, fmt.Errorf("rotating token %s: %w", id, err)
	}
	t.Secret = secret
	return t, nil
}

// Tokens lists all tokens for joining, also expired ones that Kubernetes has not removed yet.
func Tokens(ctx context.Context, client kubernetes.Interface) ([]Token, error) {
	list, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + string(bootstrap.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, fmt.Errorf("listing tokens: %w", err)
	}
	var all []Token
	for i := range list.Items {
		if t, ok := TokenOf(&list.Items[i]); ok {
			all = append(all, t)
		}
	}
	return all, nil
}

// ErrNoToken means that no token has the ID.
var ErrNoToken = errors.New("there is no such token; coracle token list shows all")

// Remove deletes the token with an ID.
func Remove(ctx context.Context, client kubernetes.Interface, id string) error {
	err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, bootstrap.BootstrapTokenSecretPrefix+id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting token %s: %w", id, ErrNoToken)
	}
	if err != nil {
		return fmt.Errorf("deleting token %s: %w", id, err)
	}
	return nil
}
