package localstorage

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/localpath"
	"github.com/coracle-dev/coracle/pkg/state"
)

// cleanUp finishes what was interrupted when coracle stopped last, and tells of folders that nobody knows.
func (s *Storage) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.dirs = s.bases(ctx)
	for _, base := range s.dirs {
		if err := localpath.FinishDeletes(base); err != nil {
			logrus.WithField("component", component).WithError(err).Warn("finishing the removal of volumes")
		}
	}
	if found := s.summary(); len(found.Left) > 0 && s.Report != nil {
		s.Report(found)
	}
}

// bases are the directories with volumes: those of the configuration, and of an earlier one as volumes tell.
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

// summary is what there is for status.
func (s *Storage) summary() state.LocalVolumes {
	out := state.LocalVolumes{Quota: map[string]string{}}
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
			out.Quota[v.Base] = pv.Annotations[localpath.QuotaAnnotation]
		}
	}
	for base := range bases {
		for _, found := range localpath.Find(base) {
			if !known[found.Path] {
				out.Left = append(out.Left, found.Path)
			}
		}
	}
	slices.Sort(out.Left)
	return out
}
