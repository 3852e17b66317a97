package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// namedSecret is a Secret that is watched by its name: the others of the cluster are nobody's business here.
type namedSecret struct {
	store cache.Store
	known cache.DoneChecker
	stop  context.CancelFunc
}

// mostSecrets is how many Secrets with passwords are watched for one namespace. Each server holds a watch for each of them.
const mostSecrets = 100

// needSecrets starts and stops watches of single Secrets, and returns when they are in sync or the time for that is over.
func (f *feed) needSecrets(ctx context.Context, names map[types.NamespacedName]bool) {
	began := map[types.NamespacedName]context.Context{} // of their watches
	var known []cache.DoneChecker
	watched := map[string]int{}
	clear(f.unread)
	for _, key := range slices.SortedFunc(maps.Keys(names), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		if watched[key.Namespace]++; watched[key.Namespace] > mostSecrets {
			f.unread[key] = fmt.Sprintf("Ingresses and RoutePolicies of namespace %s name more than %d Secrets with passwords, and those are the first by name; put users into fewer Secrets", key.Namespace, mostSecrets)
			continue
		}
		if _, ok := f.secrets[key]; !ok {
			within, stop := context.WithCancel(ctx)
			store, synced := f.watchSecret(within, key)
			f.secrets[key] = namedSecret{store, synced, stop}
			began[key], known = within, append(known, synced)
		}
	}
	for key, s := range f.secrets {
		if !names[key] || f.unread[key] != "" {
			s.stop()
			delete(f.secrets, key)
		}
	}
	awaitSync(ctx, known...)
	for key, within := range began {
		if s := f.secrets[key]; ctx.Err() == nil && !isDone(s.known) {
			logrus.WithField("component", "gateway").Warnf("Secret %s cannot be read from the API server: what asks for its passwords is answered with status 503 until it can", key)
			go f.notifyWhen(within, s.known)
		}
	}
	for key, s := range f.secrets {
		if !isDone(s.known) {
			f.unread[key] = "the API server does not answer with it yet"
		}
	}
}

// notifyWhen announces a change when the objects of a watch are known, also if there are none.
func (f *feed) notifyWhen(ctx context.Context, known cache.DoneChecker) {
	if cache.WaitFor(ctx, "", known) {
		f.notify()
	}
}

func (f *feed) watchSecret(ctx context.Context, key types.NamespacedName) (cache.Store, cache.DoneChecker) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", key.Name).String()
	}
	return f.watch(ctx, coreinformers.NewFilteredSecretInformer(f.client, key.Namespace, 0, nil, only), kube.DropManagedFields)
}

// passwords returns the Secrets that are watched by name.
func (f *feed) passwords() translate.Passwords {
	out := translate.Passwords{Secrets: map[types.NamespacedName]*corev1.Secret{}, Unread: maps.Clone(f.unread)}
	for key, s := range f.secrets {
		for _, secret := range kube.ListOf[*corev1.Secret](s.store) {
			out.Secrets[key] = secret
		}
	}
	return out
}
