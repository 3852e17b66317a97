package gateway

import (
	"context"
	"encoding/json"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The Secret by which the server that leads tells the others what their gateways answer to ACME servers. Nobody else may write it: who can have
// a host's path answered can get certificates for the host.
const (
	challengesSecret = "coracle-acme-challenges"
	challengesKey    = "challenges"
)

// needChallenges starts or stops the watch of challenges.
func (f *feed) needChallenges(ctx context.Context, needed bool) {
	switch {
	case needed && f.challenges == nil:
		within, stop := context.WithCancel(ctx)
		store, known := f.watchSecret(within, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: challengesSecret})
		f.challenges = &namedSecret{store, known, stop}
	case !needed && f.challenges != nil:
		f.challenges.stop()
		f.challenges = nil
	}
}

// listChallenges returns the challenges.
func (f *feed) listChallenges() (all []gateway.Challenge) {
	if f.challenges == nil {
		return nil
	}
	for _, s := range kube.ListOf[*corev1.Secret](f.challenges.store) {
		if err := json.Unmarshal(s.Data[challengesKey], &all); err != nil {
			logrus.WithField("component", "gateway").WithError(err).Warnf("reading Secret %s", challengesSecret)
		}
	}
	return all
}
