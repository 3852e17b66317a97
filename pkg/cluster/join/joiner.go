package join

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
)

// refreshTimeout limits the requests for the present settings of a cluster that this machine has joined. Without a response it starts with
// the stored settings.
const refreshTimeout = 2 * time.Second

// Resolve resolves the configuration of this machine with the settings of its cluster.
type Resolve func(config.Known) (config.Config, error)

// Run joins the cluster if this machine is not a member yet; otherwise it requests the present settings. It returns the
// configuration with those settings. Each step is on disk before the next and can run again after a crash at any line.
// waiting is called after each attempt to join that will be repeated.
func Run(ctx context.Context, cfg config.Config, resolve Resolve, waiting func(error)) (config.Config, error) {
	j, err := newJoiner(cfg, resolve, waiting)
	if err != nil {
		return cfg, err
	}
	if cfg.Role == config.Agent {
		known, err := j.agent(ctx)
		if err != nil {
			return cfg, err
		}
		return j.apply(known)
	}
	made, err := HasData(cfg)
	if err != nil {
		return cfg, err
	}
	agents, err := parseEither(cfg.Join.AgentToken, cfg.Join.AgentTokenFile)
	if err != nil && !((made || j.memory.Joined) && forgiven(err)) {
		return cfg, exitcode.Usagef("the agents' token: %w", err)
	}
	begins := !made && !j.memory.Joined && cfg.Join.Server == ""
	if err := checkLength(begins, j.token, agents); err != nil {
		return cfg, err
	}
	known, err := j.server(ctx, made)
	switch {
	case err != nil:
		return cfg, err
	case known == nil:
		err = KeepSettings(cfg)
	default:
		cfg, err = j.apply(*known)
	}
	if err != nil {
		return cfg, err
	}
	return cfg, offerTokens(cfg, j.token, agents)
}

// joiner is one call of Run.
type joiner struct {
	cfg     config.Config
	token   *Token // nil if none was given
	file    string // of the memory
	memory  Memory
	waiting func(error)
	timeout time.Duration // of refresh
	resolve Resolve
	// resolved is the configuration with the settings of the cluster, nil until they are known.
	resolved *config.Config
}

func newJoiner(cfg config.Config, resolve Resolve, waiting func(error)) (*joiner, error) {
	j := &joiner{cfg: cfg, file: cfg.Dirs.Cluster(), waiting: waiting, resolve: resolve, timeout: refreshTimeout}
	if cfg.Role == config.Server {
		j.file = cfg.Dirs.ServerCluster()
	}
	var err error
	if j.memory, err = LoadMemory(j.file); err != nil {
		return nil, fmt.Errorf("%w; join again after coracle reset", err)
	}
	if ca, err := pki.OwnCA(cfg.Dirs); err == nil && j.memory.Joined && cfg.Role == config.Server {
		j.memory.trust(ca)
	}
	if j.token, err = parseEither(cfg.Join.Token, cfg.Join.TokenFile); err != nil && j.member() && forgiven(err) {
		return j, nil
	}
	return j, exitcode.With(exitcode.Misuse, err)
}

// member reports whether the machine belongs to a cluster, so that it starts without a token.
func (j *joiner) member() bool {
	made, err := HasData(j.cfg)
	return j.memory.Joined || j.cfg.Role == config.Server && made && err == nil && j.memory.Joining == ""
}

// forgiven reports, with a warning, whether an error is only that the file of a token is gone.
func forgiven(err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	logrus.Warnf("starting without it, as this machine has joined: %v", err)
	return true
}

// apply writes the files that are part of the settings and returns the configuration. It resolves the configuration again only if a server
// has just sent the settings: the present configuration already has the stored ones.
func (j *joiner) apply(known config.Known) (config.Config, error) {
	if j.cfg.Role == config.Server {
		for path, text := range known.Settings.Files(j.cfg.Dirs) {
			if _, err := atomicfile.WriteIfChanged(path, []byte(text), 0o600); err != nil {
				return j.cfg, err
			}
		}
	}
	switch {
	case j.resolved != nil:
		return *j.resolved, nil
	case known.From == "":
		return j.cfg, nil
	}
	return j.resolve(known)
}

// agent joins an agent's cluster if need be, and returns its settings and servers.
func (j *joiner) agent(ctx context.Context) (config.Known, error) {
	if _, err := os.Stat(filepath.Join(j.cfg.Dirs.Etcd(), "member")); err == nil {
		return config.Known{}, fmt.Errorf("%s has a server's data: run coracle server here, or forget that cluster with coracle reset", j.cfg.Dirs.Etcd())
	}
	due, expires, err := pki.NodeCert(j.cfg)
	if !j.memory.Joined || err != nil {
		return j.join(ctx, PathAgent)
	}
	if time.Now().After(expires) {
		return j.rejoin(ctx)
	}
	known, err := j.refresh(ctx, pki.NodeFiles)
	denied := errors.As(err, new(*Denied))
	if denied { // the cluster may have another CA since
		renewed, why := j.rejoinAny(ctx, j.others())
		switch {
		case why == nil && renewed.From != "":
			return renewed, nil
		case errors.As(why, new(*Unreachable)):
			return j.rejoin(ctx)
		case exitcode.ClassOf(why) == exitcode.Removed:
			return renewed, why
		}
	}
	switch {
	case denied && j.token != nil:
		return j.join(ctx, PathAgent)
	case denied:
		return known, exitcode.With(exitcode.Unreachable, fmt.Errorf("%w; to join again, give it a token with --token-file", err))
	case err != nil:
		return known, err
	}
	if known.From != "" && time.Now().After(due) {
		if err := j.renew(ctx, known.From); err != nil {
			logrus.WithError(err).Debug("renewing this node's certificate; the next start tries again")
		}
	}
	return known, nil
}

// server does the same for a server. made says that it has a cluster's data. The result is nil if it begins the cluster itself.
func (j *joiner) server(ctx context.Context, made bool) (*config.Known, error) {
	given := j.cfg.Join.Server
	switch {
	case j.memory.Joined:
		known, err := j.refresh(ctx, pki.ServerFiles)
		if errors.As(err, new(*Denied)) {
			logrus.Warnf("%v; starting with the stored settings of the cluster", err)
			err = nil
		}
		return &known, err
	case given == "" && j.memory.Joining != "":
		return nil, fmt.Errorf("this machine was joining %s and was interrupted: start it with --server and a token again, or forget "+
			"that cluster with coracle reset", j.memory.Joining)
	case given == "":
		return nil, nil
	case made && j.memory.Joining == "":
		return nil, fmt.Errorf("this machine has a cluster of its own in %s: leave --server out; or, to join %s, end the cluster here with coracle reset",
			j.cfg.Dirs.Etcd(), given)
	}
	known, err := j.join(ctx, PathServer)
	return &known, err
}

// join sends requests to join with the token until the server accepts this machine, and saves the response.
func (j *joiner) join(ctx context.Context, path string) (config.Known, error) {
	server := j.cfg.Join.Server
	if server == "" && len(j.memory.Servers) > 0 {
		server = "https://" + j.memory.Servers[0]
	}
	switch {
	case server == "":
		return config.Known{}, exitcode.Usagef("to join a cluster this machine needs --server https://HOST:6443, and a token")
	case j.token == nil:
		return config.Known{}, exitcode.Usagef("to join %s this machine needs a token: make one on a server with coracle token create, and give it with "+
			"--token-file, --token or CORACLE_TOKEN", server)
	}
	if err := j.sameCluster(); err != nil {
		return config.Known{}, err
	}
	if j.token.Pin == "" && len(j.memory.CA) == 0 {
		logrus.Warnf("the token does not identify its cluster, so it cannot be verified that %s belongs to the right one; tokens of coracle token create do", server)
	}
	csr, err := pki.NodeRequest(j.cfg.Dirs, j.cfg.Node.Name)
	if err != nil {
		return config.Known{}, err
	}
	response, err := retrier{
		client: Client{Server: server, CA: j.memory.CA, Token: *j.token},
		path:   path,
		request: Request{Node: j.cfg.Node.Name, Version: version.Version, CSR: csr, Replace: j.cfg.Join.Replace,
			Addresses: j.cfg.Node.IPs, External: j.cfg.Node.ExternalIPs, Labels: j.cfg.Node.Labels},
		retry:   j.cfg.Join.Retry,
		waiting: j.waiting,
	}.join(ctx)
	if err != nil && exitcode.ClassOf(err) != exitcode.Removed {
		err = exitcode.With(exitcode.Unreachable, err)
	}
	if err != nil {
		return config.Known{}, err
	}
	logrus.Infof("joined the cluster of %s as node %s", server, j.cfg.Node.Name)
	return j.accept(server, response)
}

// accept saves a server's response. If it is interrupted, the next start joins again.
func (j *joiner) accept(server string, r Response) (config.Known, error) {
	memory := j.memory
	memory.follow(r.Cluster)
	memory.Joined, memory.Joining = true, ""
	memory.accept(j.token.Pin) // the server has proved that it names the CA, or one that the CA has replaced
	cfg, err := j.resolve(memory.known(server))
	if err != nil {
		return config.Known{}, exitcode.With(exitcode.Misuse, err)
	}
	j.resolved = &cfg
	if j.cfg.Role == config.Server {
		if r.Keys == nil {
			return config.Known{}, fmt.Errorf("%s accepted this machine, but did not send a server's keys: is it of the same version?", server)
		}
		// Saved before the keys, so that a machine with some of the keys never takes them for those of its own cluster.
		if err := (Memory{Joining: server}).Save(j.file); err != nil {
			return config.Known{}, err
		}
		if err := pki.WriteKeys(j.cfg.Dirs, r.Keys.Files); err != nil {
			return config.Known{}, err
		}
	}
	if err := pki.AcceptNode(j.cfg, r.Cluster.CA, r.Cert); err != nil {
		return config.Known{}, err
	}
	j.memory = memory
	return memory.known(server), memory.Save(j.file)
}

// sameCluster refuses a token for another cluster than the one that this machine has joined.
func (j *joiner) sameCluster() error {
	if j.token == nil || len(j.memory.CA) == 0 || j.memory.accepts(j.token.Pin) {
		return nil
	}
	return fmt.Errorf("this machine has joined the cluster of %s, and the token is for another one: leave the token out, or forget the old cluster "+
		"with coracle reset", strings.Join(j.memory.Servers, ", "))
}
