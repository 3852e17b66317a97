package join

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// refresh requests the present settings from the other servers, with the certificate that files names. Without a response it returns the
// stored settings.
func (j *joiner) refresh(ctx context.Context, files func(paths.Dirs) (cert, key string)) (config.Known, error) {
	if err := j.sameCluster(); err != nil {
		return config.Known{}, err
	}
	certFile, keyFile := files(j.cfg.Dirs)
	servers := j.others()
	if _, err := os.Stat(certFile); err != nil || len(servers) == 0 {
		return j.memory.known(""), nil
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	cluster, from, err := AskAny(ctx, servers, func(server string) Client {
		return Client{Server: "https://" + server, CA: j.memory.CA, CertFile: certFile, KeyFile: keyFile}
	})
	switch {
	case errors.As(err, new(*Denied)), exitcode.ClassOf(err) == exitcode.Removed:
		return j.memory.known(""), err
	case answered(err):
		logrus.Warnf("starting with the stored settings of the cluster: %v", err)
		return j.memory.known("https://" + from), nil // it is up, with settings at least as new as these
	case err != nil:
		logrus.Warnf("no server answers; starting with the stored settings of the cluster: %v", err)
		return j.memory.known(""), nil
	}
	j.memory.follow(cluster)
	return j.memory.known("https://" + from), j.memory.Save(j.file)
}

// renew renews this node's certificate at a server.
func (j *joiner) renew(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	return Renew(ctx, j.cfg, Client{Server: server, CA: j.memory.CA})
}

// others lists the known servers as HOST:PORT, without this machine.
func (j *joiner) others() (out []string) {
	all := slices.Clone(j.memory.Servers)
	balancer, _ := state.ReadAPIServers(j.cfg.Dirs.Servers()) // one of several sources
	all = append(all, balancer.Servers...)
	if j.cfg.Role == config.Agent { // not a server: it would wait at each start for servers that were removed
		all = append(all, balancer.Former...)
	}
	if given, ok := strings.CutPrefix(j.cfg.Join.Server, "https://"); ok {
		all = append(all, given)
	}
	for _, s := range all {
		if !slices.Contains(out, s) && !IsOwn(j.cfg, s) {
			out = append(out, s)
		}
	}
	return out
}

// IsOwn reports whether HOST:PORT is the API of this machine.
func IsOwn(cfg config.Config, server string) bool {
	at, err := netip.ParseAddrPort(server)
	return err == nil && cfg.Role == config.Server && at.Port() == cfg.API.Port &&
		(at.Addr() == cfg.API.Advertise || slices.Contains(cfg.Node.IPs, at.Addr()))
}
