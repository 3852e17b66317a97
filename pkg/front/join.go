package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/cluster/token"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
)

// refreshTimeout is for servers to say what is new of a cluster that the machine has joined. Without an answer it
// starts with what it remembers.
const refreshTimeout = 2 * time.Second

// joiner brings this machine into its cluster, or back into it, before anything of Kubernetes runs. Each step is on
// disk before the next and can run again after a crash at any line.
type joiner struct {
	cfg      config.Config
	token    *token.Token // nil if none was given
	file     string       // keeps the memory
	memory   join.Memory
	waiting  func(error)
	patience time.Duration // with servers that are asked what is new
	// check reports what was asked of this machine and contradicts what is known of the cluster.
	check func(config.Known) error
}

func newJoiner(cfg config.Config, waiting func(error), check func(config.Known) error) (*joiner, error) {
	j := &joiner{cfg: cfg, file: cfg.Dirs.Cluster(), waiting: waiting, check: check, patience: refreshTimeout}
	if cfg.Role == config.Server {
		j.file = cfg.Dirs.ServerCluster()
	}
	var err error
	if j.memory, err = join.Recall(j.file); err != nil {
		return nil, fmt.Errorf("%w; join again after coracle reset", err)
	}
	if ca, err := pki.OwnCA(cfg.Dirs); err == nil && j.memory.Joined && cfg.Role == config.Server {
		j.memory.CA = ca
	}
	j.token, err = readToken(cfg.Join.Token, cfg.Join.TokenFile)
	return j, exitcode.With(exitcode.Misuse, err)
}

// readToken reads the token that was given as text or in a file. Nil is none.
func readToken(text, file string) (*token.Token, error) {
	var t token.Token
	var err error
	switch {
	case file != "":
		t, err = token.Read(file)
	case text != "":
		t, err = token.Parse(text)
	default:
		return nil, nil
	}
	return &t, err
}

// agent returns what is known of the cluster, after joining it if need be.
func (j *joiner) agent(ctx context.Context) (config.Known, error) {
	if _, err := os.Stat(filepath.Join(j.cfg.Dirs.Etcd(), "member")); err == nil {
		return config.Known{}, fmt.Errorf("%s has a server's data: run coracle server here, or forget that cluster with coracle reset", j.cfg.Dirs.Etcd())
	}
	due, expires, err := pki.NodeCert(j.cfg)
	if !j.memory.Joined || err != nil || time.Now().After(expires) {
		return j.enter(ctx, join.PathAgent)
	}
	known, err := j.refresh(ctx, pki.NodeFiles)
	var denied *join.Denied
	switch {
	case errors.As(err, &denied) && j.token != nil:
		return j.enter(ctx, join.PathAgent)
	case errors.As(err, &denied):
		return known, exitcode.With(exitcode.Unreachable, fmt.Errorf("%w; to join again, give it a token with --token-file", err))
	case err != nil:
		return known, err
	}
	if known.From != "" && time.Now().After(due) {
		if err := j.renew(ctx, known.From); err != nil {
			logrus.WithError(err).Warn("renewing this node's certificate; the next start tries again")
		}
	}
	return known, nil
}

// server is agent for a server. Nil says that the cluster is this machine's own.
func (j *joiner) server(ctx context.Context, made bool) (*config.Known, error) {
	given := j.cfg.Join.Server
	switch {
	case j.memory.Joined:
		known, err := j.refresh(ctx, pki.ServerFiles)
		var denied *join.Denied
		if errors.As(err, &denied) {
			logrus.Warnf("%v; starting with what is remembered of the cluster", err)
			err = nil
		}
		return &known, err
	case given == "" && j.memory.Entering != "":
		return nil, fmt.Errorf("this machine was joining %s and was interrupted: start it with --server and a token again, or forget "+
			"that cluster with coracle reset", j.memory.Entering)
	case given == "":
		return nil, nil
	case made && j.memory.Entering == "":
		return nil, fmt.Errorf("this machine has a cluster of its own in %s: leave --server out; or, to join %s, end the cluster here with coracle reset",
			j.cfg.Dirs.Etcd(), given)
	}
	known, err := j.enter(ctx, join.PathServer)
	return &known, err
}

// enter joins: it asks, with a token, until it is let in, and writes down what it is told.
func (j *joiner) enter(ctx context.Context, path string) (config.Known, error) {
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
		logrus.Warnf("the token does not say which cluster it is for, so nobody can check that %s is the right one; tokens of coracle token create do", server)
	}
	csr, err := pki.NodeRequest(j.cfg.Dirs, j.cfg.Node.Name)
	if err != nil {
		return config.Known{}, err
	}
	response, err := join.Entry{
		Client:  join.Client{Server: server, CA: j.memory.CA, Token: *j.token},
		Path:    path,
		Request: join.Request{Node: j.cfg.Node.Name, Version: version.Version, CSR: csr, Replace: j.cfg.Join.Replace},
		Retry:   j.cfg.Join.Retry,
		Waiting: j.waiting,
	}.Run(ctx)
	if err != nil {
		return config.Known{}, exitcode.With(exitcode.Unreachable, err)
	}
	logrus.Infof("joined the cluster of %s as node %s", server, j.cfg.Node.Name)
	return j.accept(server, response)
}

// accept writes down what a server answered. Who is interrupted in between asks again.
func (j *joiner) accept(server string, r join.Response) (config.Known, error) {
	memory := join.Memory{Cluster: r.Cluster, Joined: true}
	if err := j.check(known(memory, server)); err != nil {
		return config.Known{}, err
	}
	if j.cfg.Role == config.Server {
		if r.Keys == nil {
			return config.Known{}, fmt.Errorf("%s let this machine in, but not as a server: is it of the same version?", server)
		}
		// First, so that a machine with some of the keys never takes them for those of a cluster of its own.
		if err := (join.Memory{Entering: server}).Keep(j.file); err != nil {
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
	return known(memory, server), memory.Keep(j.file)
}

// sameCluster refuses a token for another cluster than the one that this machine has joined.
func (j *joiner) sameCluster() error {
	if j.token == nil || len(j.memory.CA) == 0 || join.SameCluster(*j.token, j.memory.CA) {
		return nil
	}
	return fmt.Errorf("this machine has joined the cluster of %s, and the token is for another one: leave the token out, or forget the old cluster "+
		"with coracle reset", strings.Join(j.memory.Servers, ", "))
}

// refresh asks the servers what is new. Without an answer it is what is remembered. files names the certificate to ask with.
func (j *joiner) refresh(ctx context.Context, files certFiles) (config.Known, error) {
	if err := j.sameCluster(); err != nil {
		return config.Known{}, err
	}
	certFile, keyFile := files(j.cfg.Dirs)
	servers := j.others()
	if _, err := os.Stat(certFile); err != nil || len(servers) == 0 {
		return known(j.memory, ""), nil
	}
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	cluster, from, err := join.AskAny(ctx, servers, func(server string) join.Client {
		return join.Client{Server: "https://" + server, CA: j.memory.CA, CertFile: certFile, KeyFile: keyFile}
	})
	var denied *join.Denied
	var unreachable *join.Unreachable
	switch {
	case errors.As(err, &denied):
		return known(j.memory, ""), err
	case errors.As(err, &unreachable) && unreachable.Answered:
		logrus.Warnf("starting with what is remembered of the cluster: %v", err)
		return known(j.memory, "https://"+from), nil // which runs with settings that it had when this was written
	case err != nil:
		logrus.Warnf("no server answers, so this start is with what is remembered of the cluster: %v", err)
		return known(j.memory, ""), nil
	}
	cluster.CA = j.memory.CA // trust does not change by being asked
	j.memory.Cluster = cluster
	return known(j.memory, "https://"+from), j.memory.Keep(j.file)
}

// renew gets a new certificate for this node's key from a server that knows it.
func (j *joiner) renew(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	return join.Renew(ctx, j.cfg, join.Client{Server: server, CA: j.memory.CA})
}

func known(m join.Memory, from string) config.Known {
	return config.Known{Settings: m.Settings, Servers: m.Servers, Joined: m.Joined, From: from}
}

// others are the servers that are known, HOST:PORT, without this machine.
func (j *joiner) others() (out []string) {
	all := slices.Clone(j.memory.Servers)
	var balancer struct {
		Servers []string `json:"servers"`
		Former  []string `json:"former"`
	}
	if data, err := os.ReadFile(j.cfg.Dirs.Servers()); err == nil && json.Unmarshal(data, &balancer) == nil {
		all = append(all, balancer.Servers...)
		if j.cfg.Role == config.Agent { // a server whose others are gone for good must not wait for them at each start
			all = append(all, balancer.Former...)
		}
	}
	if given, ok := strings.CutPrefix(j.cfg.Join.Server, "https://"); ok {
		all = append(all, given)
	}
	for _, s := range all {
		if !slices.Contains(out, s) && !j.isOwn(s) {
			out = append(out, s)
		}
	}
	return out
}

// isOwn reports whether HOST:PORT is this machine's API.
func (j *joiner) isOwn(server string) bool {
	host, port, err := net.SplitHostPort(server)
	if err != nil || j.cfg.Role != config.Server || port != strconv.Itoa(int(j.cfg.API.Port)) {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr == j.cfg.API.Advertise || slices.Contains(j.cfg.Node.IPs, addr))
}
