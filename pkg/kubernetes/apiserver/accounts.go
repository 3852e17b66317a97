package apiserver

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// accountsHook is the name of the post-start hook that runs accounts.
const accountsHook = "coracle/service-accounts"

// accounts returns work that makes what the controller manager would make later: the service accounts of its controllers, for each of which it would
// send five requests in place of one when the controller starts; and what a pod in the namespace default waits for, a service account and the
// authority of the API server's certificate, which is in the file ca. What exists is left alone.
func accounts(ca string) work {
	return func(ctx context.Context, client *kubernetes.Clientset, _ informers.SharedInformerFactory) error {
		bundle, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		missing, err := missingAccounts(ctx, client)
		if err != nil {
			return err
		}
		core := client.CoreV1()
		var work []func() error
		for _, account := range missing {
			work = append(work, func() error {
				_, err := core.ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{})
				return made(err, "service account "+account.Name)
			})
		}
		authority := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootcacertpublisher.RootCACertConfigMapName, Namespace: metav1.NamespaceDefault,
				Annotations: map[string]string{rootcacertpublisher.DescriptionAnnotation: rootcacertpublisher.Description},
			},
			Data: map[string]string{"ca.crt": string(bundle)},
		}
		if _, err := core.ConfigMaps(authority.Namespace).Get(ctx, authority.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			work = append(work, func() error {
				_, err := core.ConfigMaps(authority.Namespace).Create(ctx, authority, metav1.CreateOptions{})
				return made(err, "config map "+authority.Name)
			})
		}
		if len(work) == 0 { // admission, which is not ready yet, would delay requests for nothing
			return nil
		}
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err := made(err, "namespace "+name); err != nil {
				return err
			}
		}
		return parallel(work)
	}
}

// missingAccounts returns the service accounts of controllers that do not exist, and that of the namespace default.
func missingAccounts(ctx context.Context, client *kubernetes.Clientset) (missing []*corev1.ServiceAccount, err error) {
	existing, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing service accounts: %w", err)
	}
	have := map[string]bool{}
	for _, account := range existing.Items {
		have[account.Name] = true
	}
	add := func(namespace, name string) {
		missing = append(missing, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		add(metav1.NamespaceDefault, "default")
	}
	for _, binding := range bootstrappolicy.ControllerRoleBindings() {
		for _, s := range binding.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == metav1.NamespaceSystem && !have[s.Name] {
				add(s.Namespace, s.Name)
			}
		}
	}
	return missing, nil
}
