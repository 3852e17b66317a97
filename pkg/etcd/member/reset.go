package member

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"
)

// Reset is a request to become the only member at the start, with the present data; see package resetrequest.
type Reset struct {
	// Pending reports whether there is a request, of which the data has been copied. Nil is none.
	Pending func() bool
	// Finish notes that it is done.
	Finish func() error
}

// prepareReset changes cfg for a reset if there is a request for one.
func (e *Etcd) prepareReset(cfg *embed.Config) (resetting bool, err error) {
	if e.Reset.Pending == nil || !e.Reset.Pending() {
		return false, nil
	}
	if !e.hasData() {
		return false, errors.Join(fmt.Errorf("there is no data in %s from which a new etcd could be made", e.Dir), e.Reset.Finish())
	}
	logrus.WithField("component", "etcd").Warn("making this server's etcd a cluster of one member, as asked")
	cfg.ForceNewCluster = true
	return true, nil
}

// finishReset removes the request when the member is the only one.
func (l life) finishReset() error {
	if !l.alone() {
		return fmt.Errorf("etcd has %d members after the quorum was reset", len(l.server.Server.Cluster().Members()))
	}
	if err := l.Reset.Finish(); err != nil {
		return fmt.Errorf("removing the request to reset the quorum: %w", err)
	}
	logrus.WithField("component", "etcd").Info("this server's etcd is a cluster of one member now; the other servers join it again")
	return nil
}
