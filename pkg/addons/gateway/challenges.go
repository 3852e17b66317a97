package gateway

import (
	"context"
	"encoding/json"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The Secret by which the server that leads tells the others what their gateways answer to ACME servers. Nobody else may write it: who can have
// a host's path answered can get certificates for the host.
const (
	challengesSecret = "coracle-acme-challenges"
	challengesKey    = "challenges"
)

// challengeFeed watches the challenges, while there are certificates to be had.
type challengeFeed struct {
	store cache.Store
	stop  context.CancelFunc
}

// needChallenges starts or stops the watch of challenges.
func (f *feed) needChallenges(ctx context.Context, needed bool) {
	switch {
	case needed && f.challenges == nil:
		ctx, stop := context.WithCancel(ctx)
		only := func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", challengesSecret).String()
		}
		f.challenges = &challengeFeed{stop: stop}
		f.challenges.store, _ = f.watch(ctx, coreinformers.NewFilteredSecretInformer(f.client, metav1.NamespaceSystem, 0, nil, only), kube.DropManagedFields)
	case !needed && f.challenges != nil:
		f.challenges.stop()
		f.challenges = nil
	}
}

// list returns the challenges.
func (c *challengeFeed) list() (all []gateway.Challenge) {
	if c == nil {
		return nil
	}
	for _, s := range kube.ListOf[*corev1.Secret](c.store) {
		if err := json.Unmarshal(s.Data[challengesKey], &all); err != nil {
			logrus.WithField("component", "gateway").WithError(err).Warnf("reading Secret %s", challengesSecret)
		}
	}
	return all
}
