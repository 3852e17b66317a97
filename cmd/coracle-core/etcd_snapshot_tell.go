package main

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// snapshotsMap is the ConfigMap in kube-system that lists the backups of all servers, one key for each place of each, as k3s's
// k3s-etcd-snapshots does.
const snapshotsMap = "coracle-etcd-snapshots"

// tellTimeout bounds what the cluster is told of a backup. The backup is as good without.
const tellTimeout = 15 * time.Second

// readTimeout bounds how long what is in the bucket is read for that: each backup has an index there.
const readTimeout = 2 * time.Minute

// tell writes the list of this server's backups, and an Event about the Node unless event is nil.
func (s saving) tell(ctx context.Context, event func(context.Context, admin) error) {
	var bucket map[string]string
	var stays []string // the beginnings of keys of whose places this command does not know all
	if s.settings.Dir != s.config.Snapshots.Dir {
		stays = append(stays, keyLocal)
	}
	var unread error
	if s.settings.S3.On {
		if bucket, unread = s.inBucket(ctx); unread != nil {
			logrus.WithError(unread).Warnf("the bucket cannot be read, so the ConfigMap %s keeps what it has of it", snapshotsMap)
		}
	}
	if usual := s.config.Snapshots.S3; !s.settings.S3.On || unread != nil || usual.On && !usual.SamePlace(s.settings.S3) {
		stays = append(stays, keyBucket)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	a, err := s.administer()
	if err == nil && event != nil {
		err = event(ctx, a)
	}
	if err == nil {
		err = s.listIn(ctx, a, bucket, stays)
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

// mostListed bounds how many backups of each place are in the ConfigMap, which may have 1 MB.
const mostListed = 50

// What the keys of the ConfigMap begin with, as k3s's do.
const (
	keyLocal  = "local-"
	keyBucket = "s3-"
)

// mapEntry is an entry of the ConfigMap. What k3s has in its entries is there by the same names.
type mapEntry struct {
	snapshotEntry
	NodeName  string    `json:"nodeName"` // "s3" for one in the bucket
	CreatedAt time.Time `json:"createdAt"`
	Status    string    `json:"status"`
}

// notInKey is what k3s replaces in names, as a ConfigMap's keys have no such characters.
var notInKey = regexp.MustCompile(`[^-._a-zA-Z0-9]`)

// addTo adds the entry to those of a ConfigMap.
func (e mapEntry) addTo(entries map[string]string, prefix string) error {
	e.CreatedAt, e.Status = e.Created, "successful"
	if e.Error != "" {
		e.Status = "failed"
	}
	text, err := json.Marshal(e)
	entries[prefix+notInKey.ReplaceAllString(e.Name, "_")] = string(text)
	return err
}

// inBucket returns the entries of this server's backups in the bucket. If it cannot be read as a whole, that is an error besides.
func (s saving) inBucket(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	settings := s.settings
	if settings.S3.Timeout == 0 || settings.S3.Timeout > tellTimeout {
		settings.S3.Timeout = tellTimeout
	}
	b, _, err := s.bucket(ctx, settings)
	if err != nil {
		return nil, err
	}
	there, unread := b.List(ctx, s.series)
	entries := map[string]string{}
	for _, x := range there[max(0, len(there)-mostListed):] {
		e := mapEntry{snapshotEntry: snapshotEntry{Copy: backup.Copy{Summary: x.Summary}, Location: b.Location(x)}, NodeName: "s3"}
		if err := e.addTo(entries, keyBucket); err != nil {
			return nil, err
		}
	}
	return entries, unread
}

// inDirectory returns the entries of this server's backups in the directory.
func (s saving) inDirectory() (map[string]string, error) {
	all, err := backup.Copies(s.settings.Dir)
	if err != nil {
		return nil, err
	}
	entries := map[string]string{}
	for _, c := range all[max(0, len(all)-mostListed):] {
		if c.Node != s.config.Node.Name {
			continue
		}
		if err := (mapEntry{snapshotEntry: snapshotEntry{Copy: c, Location: "file://" + c.File}, NodeName: c.Node}).addTo(entries, keyLocal); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// listIn replaces this server's backups in the ConfigMap, but those with keys that stay.
func (s saving) listIn(ctx context.Context, a admin, bucket map[string]string, stays []string) error {
	own, err := s.inDirectory()
	if err != nil {
		return err
	}
	maps.Copy(own, bucket)
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
		if merged := s.merge(found.Data, own, stays); !maps.Equal(merged, found.Data) {
			found.Data = merged
			_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
}

// merge replaces the entries of this server, but those whose keys begin with what stays.
func (s saving) merge(former, own map[string]string, stays []string) map[string]string {
	merged := maps.Clone(own)
	for key, text := range former {
		var c backup.Copy
		if json.Unmarshal([]byte(text), &c) != nil {
			continue
		}
		_, known := own[key]
		if !known && slices.ContainsFunc(stays, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) || c.Node != s.config.Node.Name {
			merged[key] = text
		}
	}
	return merged
}
