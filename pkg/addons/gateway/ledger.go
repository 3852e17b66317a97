package gateway

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/acme"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The Secret in kube-system with the account's key and the book.
const (
	ledgerSecret = "coracle-acme"
	accountKey   = "account.key"
	bookKey      = "book.json"
)

// managedBy says of a Secret that coracle has made it.
const managedBy = "app.kubernetes.io/managed-by"

// ledger is what the servers share about their account at an ACME server.
type ledger struct {
	key    crypto.Signer
	book   *acme.Book
	secret *corev1.Secret // as it was read or written last
	stored bool           // it was
	read   time.Time
}

// readLedger reads it, or begins a new one for another ACME server.
func readLedger(ctx context.Context, client kubernetes.Interface, directory string) (*ledger, error) {
	secret, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, ledgerSecret, metav1.GetOptions{})
	stored := err == nil
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: ledgerSecret, Labels: map[string]string{managedBy: "coracle"}}}
	} else if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", ledgerSecret, err)
	}
	l := &ledger{book: &acme.Book{}, secret: secret, stored: stored, read: time.Now()}
	if text := secret.Data[bookKey]; len(text) > 0 {
		if err := json.Unmarshal(text, l.book); err != nil {
			return nil, fmt.Errorf("reading %s of Secret %s: %w; delete the Secret, and coracle begins with a new account", bookKey, ledgerSecret, err)
		}
	}
	if l.book.Directory == directory {
		if l.key, err = acme.ParseKey(secret.Data[accountKey]); err != nil {
			return nil, fmt.Errorf("reading %s of Secret %s: %w; delete the Secret, and coracle begins with a new account", accountKey, ledgerSecret, err)
		}
		return l, nil
	}
	l.book = &acme.Book{Directory: directory}
	key, err := acme.NewKey()
	if err != nil {
		return nil, err
	}
	text, err := acme.KeyPEM(key)
	l.key, secret.Data = key, map[string][]byte{accountKey: text}
	return l, err
}

// write writes it. It fails if another server has written meanwhile.
func (l *ledger) write(ctx context.Context, client kubernetes.Interface) error {
	text, err := json.Marshal(l.book)
	if err != nil {
		return err
	}
	l.secret.Data[bookKey] = text
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	write := func() (*corev1.Secret, error) { return secrets.Create(ctx, l.secret, metav1.CreateOptions{}) }
	if l.stored {
		write = func() (*corev1.Secret, error) { return secrets.Update(ctx, l.secret, metav1.UpdateOptions{}) }
	}
	written, err := write()
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", ledgerSecret, err)
	}
	l.secret, l.stored = written, true
	return nil
}

// present has the gateways of all servers answer challenges, and no others.
func (w *issuing) present(ctx context.Context, all []acme.Challenge) error {
	secrets := w.client.CoreV1().Secrets(metav1.NamespaceSystem)
	if len(all) == 0 {
		if err := secrets.Delete(ctx, challengesSecret, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Secret %s: %w", challengesSecret, err)
		}
		return nil
	}
	answers := make([]gateway.Challenge, len(all))
	for i, c := range all {
		answers[i] = c.Challenge
	}
	text, err := json.Marshal(answers)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: challengesSecret, Labels: map[string]string{managedBy: "coracle"}},
		Data:       map[string][]byte{challengesKey: text},
	}
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of the server that began this order
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", challengesSecret, err)
	}
	return nil
}

// find returns the Secret for a certificate; nil if there is none. It is an error if others have made it.
func find(ctx context.Context, client kubernetes.Interface, name types.NamespacedName) (*corev1.Secret, error) {
	secret, err := client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	case secret.Type != corev1.SecretTypeTLS || secret.Annotations[translate.AnnotationIssuer] == "":
		return nil, notOursError(fmt.Sprintf("Secret %s of type %s was not made by coracle, which leaves it as it is: delete it, or name another one", name, secret.Type))
	}
	return secret, nil
}

// notOursError says that others have made a Secret.
type notOursError string

func (e notOursError) Error() string { return string(e) }

// store writes a certificate into its Secret, which stays when the Ingress is deleted: one that is made anew needs no new certificate.
func store(ctx context.Context, client kubernetes.Interface, name types.NamespacedName, issuer string, chain, key []byte) error {
	secret, err := find(ctx, client, name)
	if err != nil {
		return err
	}
	secrets, data := client.CoreV1().Secrets(name.Namespace), map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}
	if secret == nil {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name.Name, Labels: map[string]string{managedBy: "coracle"}, Annotations: map[string]string{translate.AnnotationIssuer: issuer}},
			Type:       corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		secret.Data, secret.Annotations[translate.AnnotationIssuer] = data, issuer
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", name, err)
	}
	return nil
}
