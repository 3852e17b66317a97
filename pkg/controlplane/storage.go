package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/cluster/resetrequest"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/etcd/encryptionconfig"
	"github.com/coracle-dev/coracle/pkg/etcd/maintenance"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/etcd/memberremoval"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
	"github.com/coracle-dev/coracle/pkg/etcd/rekey"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
)

// storage is the datastore of the cluster: a member of coracle's own etcd, or an external one.
type storage struct {
	unit    *lifecycle.Unit
	store   config.Datastore
	dial    func() (*clientv3.Client, error)
	member  *member.Etcd     // nil for an external datastore, as members is
	members *members.Members // as this server's member sees them
}

// AddStorage adds only the datastore to g, for commands that repair it.
func AddStorage(g *lifecycle.Group, cfg config.Config) { addStorage(g, cfg) }

// RequestReset makes the next start reduce etcd to this member alone, after the data is copied to the directory snapshot.
func RequestReset(dirs paths.Dirs, snapshot string) error {
	return resetrequest.Request{Snapshot: snapshot}.Write(dirs.ResetRequest())
}

func addStorage(g *lifecycle.Group, cfg config.Config) storage {
	if cfg.Datastore.External() {
		own := func() (string, error) { return pki.OwnPin(cfg.Dirs) }
		external := member.External{Store: cfg.Datastore, Cluster: own}
		return storage{unit: g.Add("datastore", external), store: cfg.Datastore, dial: external.Dial}
	}
	dirs := cfg.Dirs
	peer := member.TLS{
		CA:   pkiFile(dirs, filepath.Join("etcd", "ca.crt")),
		Cert: pkiFile(dirs, filepath.Join("etcd", "peer.crt")),
		Key:  pkiFile(dirs, filepath.Join("etcd", "peer.key")),
	}
	member := &member.Etcd{
		Name:   cfg.Node.Name,
		Dir:    dirs.Etcd(),
		Socket: dirs.EtcdSocket(),
		Peer:   netip.AddrPortFrom(cfg.Node.IPs[0], member.PeerPort),
		TLS:    peer,
		Others: Others(cfg),
		Args:   cfg.Args["etcd"],
		Reset: member.Reset{
			Pending: func() bool { return controlplaneuser.Pending(dirs, dirs.ResetRequest()) },
			Finish:  func() error { return controlplaneuser.Finish(dirs, dirs.ResetRequest()) },
		},
		Volatile: cfg.Ephemeral.On,
	}
	s := storage{
		unit:    g.Add("etcd", member),
		store:   config.Datastore{Endpoints: []string{"unix://" + dirs.EtcdSocket()}},
		member:  member,
		members: &members.Members{Socket: dirs.EtcdSocket(), CA: peer.CA, Cert: peer.Cert, Key: peer.Key},
	}
	s.dial = s.members.Dial
	if controlplaneuser.Pending(dirs, dirs.RekeyRequest()) {
		s.unit = g.Add("rekey", rekey.Rekey{
			Request: dirs.RekeyRequest(), Finish: func() error { return controlplaneuser.Finish(dirs, dirs.RekeyRequest()) },
			CA: pkiFile(dirs, "ca.crt"), Seals: func() ([]encryption.Seal, error) { return encryption.NewSeals(dirs, pki.SealSecrets) }, Dial: s.dial,
			Passphrase: encryption.NewPassphrase(cfg),
		}, s.unit)
	}
	return s
}

// addEncryption adds what the API server needs to encrypt Secrets. file is its configuration, "" if the user gives one.
func (s storage) addEncryption(g *lifecycle.Group, cfg config.Config) (unit *lifecycle.Unit, file string) {
	c := encryptionconfig.Config{
		Dial:   s.dial,
		Prefix: encryption.Prefix(cfg.Datastore),
		Seals:  func() ([]encryption.Seal, error) { return encryption.NewSeals(cfg.Dirs, pki.SealSecrets) },
		Node:   cfg.Node.Name,

		Passphrase: encryption.NewPassphrase(cfg),
	}
	if !encryption.OfUser(cfg) {
		c.File = cfg.Dirs.ControlPlaneRun("encryption.json")
	}
	return g.Add("encryption", c, s.unit), c.File
}

// Others is the client of the cluster's other servers that are known on this machine.
func Others(cfg config.Config) members.Remote {
	cert, key := pki.ServerFiles(cfg.Dirs)
	return members.Remote{
		Joined:  func() bool { return cfg.Join.Joined || join.Remembered(cfg).Joined },
		Servers: func() []string { return otherServers(cfg) },
		CA:      pkiFile(cfg.Dirs, "ca.crt"), Cert: cert, Key: key,
	}
}

// several reports whether there may be other servers.
func (s storage) several(ctx context.Context) (bool, error) {
	if s.member == nil {
		return true, nil
	}
	members, err := s.members.List(ctx)
	return len(members) > 1, err
}

// beforeAdd prepares this server for another member: it takes part in leader election from then on, and its own member
// listens for peers.
func (s storage) beforeAdd(ctx context.Context, lead *leaderelection.Leadership) error {
	if err := lead.Contest(ctx); err != nil {
		return fmt.Errorf("sharing the lead with another server: %w", err)
	}
	return s.member.OpenPeers(ctx)
}

// otherServers returns HOST:PORT of the API of every other server that is known on this machine.
func otherServers(cfg config.Config) []string {
	balanced, _ := state.ReadAPIServers(cfg.Dirs.Servers()) // one of several sources
	all := slices.Concat(cfg.Join.Servers, join.Remembered(cfg).Servers, balanced.Servers, balanced.Former)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(server string) bool { return join.IsOwn(cfg, server) })
}

// addEtcdServices adds the components that maintain coracle's own etcd, if the cluster uses it.
func addEtcdServices(g *lifecycle.Group, cfg config.Config, data storage, report *state.Recorder, lead, objects *lifecycle.Unit) error {
	if data.members == nil {
		return nil
	}
	kubeconfig := cfg.Dirs.ServerConfig("coracle.kubeconfig")
	client, err := kube.Client(kubeconfig)
	if err != nil {
		return err
	}
	cluster := maintenance.Cluster{Client: client, Node: cfg.Node.Name}
	g.Add("etcd-maintenance", maintenance.Maintenance{
		Members: data.members,
		Turn:    cluster.Turn,
		Tell: func(ctx context.Context, alarms, before []maintenance.Alarm) {
			report.Detail(state.EtcdDetail, reported(alarms))
			if err := cluster.Event(ctx, alarms, before); err != nil {
				logrus.WithField("component", "etcd-maintenance").WithError(err).Debug("creating an event for alarms")
			}
		},
	}, data.unit) // not after the API, which does not answer while there are alarms
	g.Add("etcd-members", memberremoval.Removal{Kubeconfig: kubeconfig, Own: cfg.Node.Name, Members: data.members}, lead, objects)
	return nil
}

func reported(alarms []maintenance.Alarm) []state.EtcdAlarm {
	all := []state.EtcdAlarm{}
	for _, a := range alarms {
		logrus.WithField("component", "etcd-maintenance").Errorf("etcd's alarm %s of %s: %s", a.Kind, a.Member, a.Advice)
		all = append(all, state.EtcdAlarm{Kind: a.Kind, Member: a.Member, Advice: a.Advice})
	}
	return all
}
