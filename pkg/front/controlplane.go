package front

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/certificates"
	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/cluster/resetrequest"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// chooseUser decides which user the control plane runs as.
func (f *front) chooseUser() error {
	if f.cfg.Role != config.Server {
		return nil
	}
	f.cfg.ControlPlane = controlplaneuser.Choose(f.cfg)
	if why := f.cfg.ControlPlane.AsRoot; why != "" {
		logrus.Infof("the control plane runs as root: %s", why)
	}
	f.copies = controlplaneuser.NewCopies(f.cfg, controlplaneuser.Front{
		Joined: func() error { return join.MarkJoined(f.cfg.Dirs.ServerCluster()) },
		Adopt: func(authorities []byte) error {
			var files map[string][]byte
			if err := json.Unmarshal(authorities, &files); err != nil {
				return err
			}
			return pki.Adopt(f.cfg, files)
		},
		Named:  registries.Named,
		Failed: func(err error) { logrus.WithError(err).Warn("copying files for the control plane") },
	})
	f.super.Programs = f.programs()
	return nil
}

// prepareControlPlane does as root what the next instance of the control plane may not do itself.
func (f *front) prepareControlPlane() error {
	if err := resetrequest.CopyData(f.cfg.Dirs); err != nil {
		return err
	}
	if err := f.copies.Prepare(); err != nil {
		return fmt.Errorf("preparing the control plane's files: %w", err)
	}
	return nil
}

// keepCopies keeps the control plane's copies of root's files current until ctx is done.
func (f *front) keepCopies(ctx context.Context) {
	if f.copies != nil {
		go f.copies.Keep(ctx)
	}
}

// renew renews the control plane's certificates until ctx is done.
func (f *front) renew(ctx context.Context) {
	if f.copies != nil {
		_ = certificates.Renewal{Config: f.cfg}.Run(ctx, func() {}) // it ends with ctx, and logs what fails
	}
}

// leaveTrial gives the control plane's files to root if this version is still on trial: the guard, which may restore the version before,
// belongs to that one, and need not know the control plane's user.
func (f *front) leaveTrial() {
	if s, _, err := upgrade.Read(f.cfg.Dirs.Data); f.copies == nil || err != nil || s.Phase != upgrade.Trial {
		return
	}
	if err := controlplaneuser.ToRoot(f.cfg.Dirs); err != nil {
		logrus.WithError(err).Warn("giving the control plane's files to root")
	}
}
