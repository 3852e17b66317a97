package kubelet

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// The kubelet makes a file for the last words of each container that it starts, and keeps it as long as the pod exists. The newest ones are those of the
// container that runs and of the last that ended; one more may wait for its removal.
const keptLastWords = 3

// trimLastWords removes the files that nobody reads, now and then hourly: a pod that is restarted often enough would use up the inodes.
func (k Kubelet) trimLastWords(ctx context.Context) {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		if err := removeLastWords(k.Root); err != nil {
			klog.FromContext(ctx).Error(err, "removing files for the last words of former containers")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func removeLastWords(root string) error {
	dirs, err := filepath.Glob(filepath.Join(root, "pods", "*", "containers", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if os.IsNotExist(err) || len(entries) <= keptLastWords {
			continue // the pod was removed meanwhile, or there is little
		}
		if err != nil {
			return err
		}
		var files []os.FileInfo
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				files = append(files, info)
			}
		}
		slices.SortFunc(files, func(a, b os.FileInfo) int { return cmp.Compare(b.ModTime().UnixNano(), a.ModTime().UnixNano()) })
		for _, old := range files[min(keptLastWords, len(files)):] {
			if err := os.Remove(filepath.Join(dir, old.Name())); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}
