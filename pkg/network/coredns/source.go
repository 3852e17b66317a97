package coredns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// Sources of a Corefile.
const (
	fromCluster = "cluster"
	fromCache   = "cache"
	fromDefault = "default"
)

type candidate struct{ corefile, source string }

// candidates returns the Corefiles to try at start, best first.
func (r *running) candidates(ctx context.Context) []candidate {
	var out []candidate
	live, err := r.fetch(ctx)
	if err == nil && live != "" {
		out = append(out, candidate{live, fromCluster})
	}
	if cached, fileErr := os.ReadFile(r.Cache); fileErr == nil && (err != nil || live != "") {
		out = append(out, candidate{string(cached), fromCache})
	}
	return append(out, candidate{r.Default, fromDefault})
}

// How long a start waits for the cluster's Corefile, and for the permission to read it, which a new cluster grants a moment after the
// API answers.
const (
	fetchTimeout      = time.Second
	permissionTimeout = 10 * time.Second
)

// fetch returns the Corefile of the ConfigMap, "" if there is none.
func (r *running) fetch(ctx context.Context) (corefile string, err error) {
	ctx, cancel := context.WithTimeout(ctx, permissionTimeout)
	defer cancel()
	var final error
	err = lifecycle.Until(ctx, "permission to read the Corefile", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		configMap, err := r.client.CoreV1().ConfigMaps(clusterdns.Namespace).Get(ctx, clusterdns.ConfigMap, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			return err
		case err == nil:
			corefile = configMap.Data[clusterdns.Key]
		case !apierrors.IsNotFound(err):
			final = err
		}
		return nil
	})
	return corefile, errors.Join(err, final)
}

// watchCorefile sends the Corefile of the ConfigMap now and after each change. Without one it sends the default.
func (r *running) watchCorefile(ctx context.Context, to chan<- candidate) {
	send := func(obj any) {
		c := candidate{r.Default, fromDefault}
		if configMap, ok := obj.(*corev1.ConfigMap); ok && configMap.Data[clusterdns.Key] != "" {
			c = candidate{configMap.Data[clusterdns.Key], fromCluster}
		}
		select {
		case to <- c:
		case <-ctx.Done():
		}
	}
	selector := fields.OneTermEqualSelector("metadata.name", clusterdns.ConfigMap)
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(r.client.CoreV1().RESTClient(), "configmaps", clusterdns.Namespace, selector),
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    send,
			UpdateFunc: func(_, obj any) { send(obj) },
			DeleteFunc: func(any) { send(nil) },
		},
	})
	controller.RunWithContext(kube.WithComponent(ctx, "dns"))
}

// event writes a Warning event about the ConfigMap. Its error is logged at debug level only, as the problem is also in the log.
func (r *running) event(ctx context.Context, problem error) {
	source := corev1.EventSource{Component: "coracle-dns", Host: r.Node}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: clusterdns.Namespace, Name: clusterdns.ConfigMap}
	message := fmt.Sprintf("node %s keeps its last good Corefile: %v", r.Node, problem)
	err := kube.SendEvent(ctx, r.client, source, about, corev1.EventTypeWarning, "BadCorefile", message)
	if err != nil {
		r.log.WithError(err).Debug("writing an event about the Corefile")
	}
}
