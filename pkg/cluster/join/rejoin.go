package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// rejoin renews the expired certificate of an agent that was off for long, and returns the settings of its cluster. The machine's key in the TLS
// handshake is the proof, so no token is needed. It waits until a server answers.
func (j *joiner) rejoin(ctx context.Context) (config.Known, error) {
	if err := j.sameCluster(); err != nil {
		return config.Known{}, err
	}
	servers := j.others()
	if len(servers) == 0 {
		return j.join(ctx, PathAgent)
	}
	for began := time.Now(); ; {
		known, err := j.rejoinAny(ctx, servers)
		denied := errors.As(err, new(*Denied))
		switch {
		case err == nil, exitcode.ClassOf(err) == exitcode.Removed:
			return known, err
		case denied && j.token != nil:
			return j.join(ctx, PathAgent)
		case denied:
			return known, exitcode.With(exitcode.Unreachable, fmt.Errorf("%w; to join again, give it a token with --token-file", err))
		case !errors.As(err, new(*Unreachable)) || !j.cfg.Join.Retry:
			return known, exitcode.With(exitcode.Unreachable, err)
		}
		j.waiting(fmt.Errorf("this node's certificate has expired, and no server can renew it yet: %w", err))
		if err := lifecycle.Sleep(ctx, min(max(time.Since(began)/pauseShare, shortPause), longPause)); err != nil {
			return known, err
		}
	}
}

// rejoinAny asks one server after the other. The error is that of a server which answered, if any did.
func (j *joiner) rejoinAny(ctx context.Context, servers []string) (config.Known, error) {
	var why error
	for _, server := range servers {
		cluster, err := renew(ctx, j.cfg, Client{Server: "https://" + server, CA: j.memory.CA})
		switch {
		case err == nil:
			logrus.Infof("renewed this node's certificate, which was not accepted any more, at %s", server)
			j.memory.follow(cluster)
			return j.memory.known("https://" + server), j.memory.Save(j.file)
		case exitcode.ClassOf(err) == exitcode.Removed:
			return config.Known{}, err
		case why == nil, errors.As(why, new(*Unreachable)) && !errors.As(err, new(*Unreachable)):
			why = err
		}
	}
	return config.Known{}, why
}
