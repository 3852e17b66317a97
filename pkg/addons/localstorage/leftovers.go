package localstorage

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// lookAround records the directories that may hold volumes, and reports leftovers in them.
func (s *Storage) lookAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.dirs = s.bases(ctx)
	if found := s.summary(ctx); len(found.Left) > 0 && s.Report != nil {
		s.Report(found)
	}
}

// finishDeletes continues the removals that were interrupted when coracle stopped. That may take minutes.
func (s *Storage) finishDeletes(ctx context.Context) {
	for _, base := range s.dirs {
		if err := localpath.FinishDeletes(ctx, base); err != nil {
			logrus.WithField("component", component).WithError(err).Warn("finishing the removal of volumes")
		}
	}
}

// bases returns the directories that hold volumes, by the configuration and by the volumes of an earlier configuration.
func (s *Storage) bases(ctx context.Context) []string {
	all := map[string]bool{}
	if config, err := readConfig(ctx, s.client); err == nil {
		for _, base := range config.Bases(s.Node.Name) {
			all[base] = true
		}
	}
	for _, obj := range s.volumes.GetStore().List() {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			if v, err := folderOf(pv); err == nil {
				all[v.Base] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// summary returns the report for coracle status.
func (s *Storage) summary(ctx context.Context) Volumes {
	out := Volumes{Quota: map[string]string{}}
	known, bases := map[string]bool{}, map[string]bool{}
	for _, dir := range s.dirs {
		bases[dir] = true
	}
	for _, obj := range s.volumes.GetStore().List() {
		pv, ok := obj.(*corev1.PersistentVolume)
		if !ok {
			continue
		}
		out.Volumes++
		if v, err := folderOf(pv); err == nil {
			known[v.Path()], bases[v.Base] = true, true
			out.Quota[v.Base] = max(out.Quota[v.Base], pv.Annotations[localpath.QuotaAnnotation]) // "not enforced" wins
		}
	}
	var left []localpath.Found
	for base := range bases {
		for _, found := range localpath.Find(ctx, base) {
			if !known[found.Path] {
				left = append(left, found)
			}
		}
	}
	for _, found := range s.unused(ctx, left) {
		out.Left = append(out.Left, found.Path)
	}
	slices.Sort(out.Left)
	return out
}

// unused returns the directories that no volume of the cluster uses. Volumes that users created, or that another provisioner
// made, have no label of coracle, so it compares paths. If the volumes cannot be listed it returns none, because users
// remove what is reported as unused.
func (s *Storage) unused(ctx context.Context, folders []localpath.Found) []localpath.Found {
	if len(folders) == 0 {
		return nil
	}
	list, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		logrus.WithField("component", component).WithError(err).Warn("asking which folders belong to volumes")
		return nil
	}
	return slices.DeleteFunc(folders, func(f localpath.Found) bool {
		return slices.ContainsFunc(list.Items, func(pv corev1.PersistentVolume) bool {
			path := kube.VolumePath(&pv)
			return pv.Name == f.PV || path != "" && (within(path, f.Path) || within(f.Path, path))
		})
	})
}

// within reports whether a path is a directory or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
