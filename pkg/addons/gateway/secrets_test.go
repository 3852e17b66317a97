package gateway

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/routepolicy"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// TestSecretNames: what cannot be the name of a Secret gets into no request.
func TestSecretNames(t *testing.T) {
	var ingresses []*networkingv1.Ingress
	var policies []*routepolicy.RoutePolicy
	for _, name := range []string{strings.Repeat("a", 200_000), "a b", "../users", "A", ""} {
		ingresses = append(ingresses, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Annotations: map[string]string{
			"nginx.ingress.kubernetes.io/auth-type": "basic", "nginx.ingress.kubernetes.io/auth-secret": name,
		}}})
		p := &routepolicy.RoutePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "evil"}}
		p.Spec.BasicAuth = &routepolicy.BasicAuth{}
		p.Spec.BasicAuth.SecretRef.Name = name
		policies = append(policies, p)
	}
	if got := translate.PasswordSecrets(ingresses); len(got) > 0 {
		t.Errorf("%d names of annotations are watched", len(got))
	}
	if got := routepolicy.Secrets(policies); len(got) > 0 {
		t.Errorf("%d names of policies are watched", len(got))
	}
}

// TestSecretsOfOneNamespace: the Secrets of a namespace beyond the bound are not watched, and people are told; those of others are.
func TestSecretsOfOneNamespace(t *testing.T) {
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "users"}})
	f := newFeed(client)
	names := map[types.NamespacedName]bool{{Namespace: "shop", Name: "users"}: true}
	for n := range mostSecrets + 50 {
		names[types.NamespacedName{Namespace: "evil", Name: fmt.Sprintf("s%04d", n)}] = true
	}
	for range 2 {
		f.needSecrets(t.Context(), names)
		if len(f.secrets) != mostSecrets+1 || len(f.unread) != 50 {
			t.Errorf("%d Secrets are watched, %d are not", len(f.secrets), len(f.unread))
		}
	}
	p := f.passwords()
	if p.Secrets[types.NamespacedName{Namespace: "shop", Name: "users"}] == nil {
		t.Error("the Secret of another namespace is not read")
	}
	if _, err := p.Hashes(types.NamespacedName{Namespace: "evil", Name: "s0149"}, false); err == nil || !strings.Contains(err.Error(), "more than 100 Secrets") {
		t.Error(err)
	}
	f.needSecrets(t.Context(), nil)
	if len(f.secrets)+len(f.unread) > 0 {
		t.Errorf("%v %v are left", f.secrets, f.unread)
	}
}

// TestSecretThatDoesNotCome: a Secret that cannot be read stops nobody, and is used when it can be.
func TestSecretThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := types.NamespacedName{Namespace: "evil", Name: "stuck"}
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		until := time.Now().Add(time.Minute)
		client.PrependReactor("list", "secrets", func(ktesting.Action) (bool, runtime.Object, error) {
			return time.Now().Before(until), nil, apierrors.NewBadRequest("no")
		})
		f := newFeed(client)
		began := time.Now()
		f.needSecrets(t.Context(), map[types.NamespacedName]bool{key: true})
		f.needSecrets(t.Context(), map[types.NamespacedName]bool{key: true})
		if took := time.Since(began); took != syncTimeout {
			t.Errorf("it took %v", took)
		}
		if _, err := f.passwords().Hashes(key, false); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Error(err)
		}
		<-f.changed
		f.needSecrets(t.Context(), map[types.NamespacedName]bool{key: true})
		if p := f.passwords(); p.Secrets[key] == nil || len(p.Unread) > 0 {
			t.Errorf("%+v", p)
		}
		f.needSecrets(t.Context(), nil)
	})
}

// TestSecretNamedNoLonger: nothing waits any longer for a Secret that cannot be read and that nobody names any more.
func TestSecretNamedNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "secrets", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewBadRequest("no")
		})
		f := newFeed(client)
		before := goruntime.NumGoroutine()
		for n := range 20 {
			f.needSecrets(t.Context(), map[types.NamespacedName]bool{{Namespace: "evil", Name: fmt.Sprint("s", n)}: true})
		}
		f.needSecrets(t.Context(), nil)
		synctest.Wait()
		if more := goruntime.NumGoroutine() - before; more > 10 {
			t.Errorf("%d goroutines wait for 20 Secrets", more)
		}
	})
}
