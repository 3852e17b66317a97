package main

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// snapshotsMap is the ConfigMap in kube-system that lists the backups of all servers, one key for each; k3s has such a one.
const snapshotsMap = "coracle-etcd-snapshots"

// tellTimeout bounds what the cluster is told of a backup. The backup is as good without.
const tellTimeout = 15 * time.Second

// tell writes the list of this server's backups, and an Event about the Node unless event is nil.
func (s saving) tell(ctx context.Context, event func(context.Context, admin) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	a, err := s.administer()
	if err == nil && event != nil {
		err = event(ctx, a)
	}
	if err == nil {
		err = s.listIn(ctx, a)
	}
	if err != nil {
		logrus.WithError(err).Warn("telling the cluster of its backups")
	}
}

// event returns what writes the Event about a backup.
func (s saving) event(made backup.Copy, failed error) func(context.Context, admin) error {
	kind, reason, text := corev1.EventTypeNormal, "EtcdSnapshotSaved", made.File+" is written and tried"
	switch {
	case failed != nil:
		kind, reason, text = corev1.EventTypeWarning, "EtcdSnapshotFailed", failed.Error()
	case made.Bucket != "":
		text += ", and in " + made.Bucket
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.config.Node.Name}
	return func(ctx context.Context, a admin) error {
		return kube.SendEvent(ctx, a.client, corev1.EventSource{Component: "coracle", Host: s.config.Node.Name}, about, kind, reason, text)
	}
}

// mostListed bounds the ConfigMap, which may have 1 MB.
const mostListed = 100

// listIn replaces this server's backups in the ConfigMap.
func (s saving) listIn(ctx context.Context, a admin) error {
	all, err := backup.Copies(s.settings.Dir)
	if err != nil {
		return err
	}
	own := map[string]string{}
	for _, c := range all[max(0, len(all)-mostListed):] {
		if c.Node != s.config.Node.Name {
			continue
		}
		text, err := json.Marshal(snapshotEntry{Copy: c, Location: c.File})
		if err != nil {
			return err
		}
		own[c.Name] = string(text)
	}
	configMaps := a.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := configMaps.Get(ctx, snapshotsMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: snapshotsMap}, Data: own}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if merged := s.merge(found.Data, own); !maps.Equal(merged, found.Data) {
			found.Data = merged
			_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
}

// merge replaces the entries of this server.
func (s saving) merge(former, own map[string]string) map[string]string {
	merged := maps.Clone(own)
	for name, text := range former {
		var c backup.Copy
		if json.Unmarshal([]byte(text), &c) == nil && c.Node != s.config.Node.Name {
			merged[name] = text
		}
	}
	return merged
}
