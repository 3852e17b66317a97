package gateway

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// namedSecret is a Secret that is watched by its name: the others of the cluster are nobody's business here.
type namedSecret struct {
	store cache.Store
	stop  context.CancelFunc
}

// needSecrets starts and stops watches of single Secrets, and returns when they are in sync.
func (f *feed) needSecrets(ctx context.Context, names map[types.NamespacedName]bool) {
	var synced []cache.DoneChecker
	for key := range names {
		if _, ok := f.secrets[key]; ok {
			continue
		}
		secret, done := f.watchSecret(ctx, key)
		f.secrets[key] = secret
		synced = append(synced, done)
	}
	for key, s := range f.secrets {
		if !names[key] {
			s.stop()
			delete(f.secrets, key)
		}
	}
	cache.WaitFor(ctx, "", synced...)
}

func (f *feed) watchSecret(ctx context.Context, key types.NamespacedName) (namedSecret, cache.DoneChecker) {
	ctx, stop := context.WithCancel(ctx)
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", key.Name).String()
	}
	store, synced := f.watch(ctx, coreinformers.NewFilteredSecretInformer(f.client, key.Namespace, 0, nil, only), kube.DropManagedFields)
	return namedSecret{store, stop}, synced
}

// passwords returns the Secrets that are watched by name.
func (f *feed) passwords() map[types.NamespacedName]*corev1.Secret {
	out := map[types.NamespacedName]*corev1.Secret{}
	for key, s := range f.secrets {
		for _, secret := range kube.ListOf[*corev1.Secret](s.store) {
			out[key] = secret
		}
	}
	return out
}
