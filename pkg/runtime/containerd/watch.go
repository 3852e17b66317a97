package containerd

import (
	"context"
	"path/filepath"
	"time"

	"github.com/containerd/log"
	"github.com/fsnotify/fsnotify"
)

// settle is how long registries.yaml must be left alone before it is looked at: editors write in pieces.
const settle = 100 * time.Millisecond

// watch says at once what is wrong with a registries.yaml that somebody edits, instead of at the next pull. Pulls do not
// need it. A directory that cannot be watched, as one that is not there, is not.
func (p *puller) watch(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(p.File.Path()))
	}
	if err != nil {
		log.L.WithError(err).Debug("nobody watches registries.yaml")
		return
	}
	last, _ := p.state()
	quiet := time.NewTimer(settle)
	quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			if event.Name == p.File.Path() && event.Op != fsnotify.Chmod {
				quiet.Reset(settle)
			}
		case <-watcher.Errors: // events were lost
			quiet.Reset(settle)
		case <-quiet.C:
			file, wrong := p.File.Now()
			_, _ = p.state() // says what is wrong
			if wrong == nil && file != last {
				last = file
				log.L.Info("registries.yaml has changed: the next pull goes by it")
			}
		}
	}
}
