package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
	"github.com/coracle-dev/coracle/pkg/etcd/rekey"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
)

// storage is where the cluster's data is: in a member of our own etcd, or in somebody else's.
type storage struct {
	unit    *lifecycle.Unit
	store   config.Datastore
	member  *member.Etcd     // nil for somebody else's, as members is
	members *members.Members // as our own member sees them
}

// AddStorage enters nothing but the cluster's data into g, for a command that repairs it.
func AddStorage(g *lifecycle.Group, cfg config.Config) { addStorage(g, cfg) }

// RequestReset has the next start make etcd a cluster of this member alone. Its data is copied to the directory
// snapshot first.
func RequestReset(dirs paths.Dirs, snapshot string) error {
	return member.ResetRequest{Snapshot: snapshot}.Write(dirs.ResetRequest())
}

func addStorage(g *lifecycle.Group, cfg config.Config) storage {
	if cfg.Datastore.External() {
		own := func() (string, error) { return pki.OwnPin(cfg.Dirs) }
		return storage{unit: g.Add("datastore", member.External{Store: cfg.Datastore, Cluster: own}), store: cfg.Datastore}
	}
	dirs := cfg.Dirs
	cert, key := pki.ServerFiles(dirs)
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
		Others: members.Remote{
			Joined:  func() bool { return cfg.Join.Joined || remembered(cfg).Joined },
			Servers: func() []string { return otherServers(cfg) },
			CA:      pkiFile(dirs, "ca.crt"), Cert: cert, Key: key,
		},
		Args:         cfg.Args["etcd"],
		ResetRequest: dirs.ResetRequest(),
		Volatile:     cfg.Ephemeral.On,
	}
	s := storage{
		unit:    g.Add("etcd", member),
		store:   config.Datastore{Endpoints: []string{"unix://" + dirs.EtcdSocket()}},
		member:  member,
		members: &members.Members{Socket: dirs.EtcdSocket(), CA: peer.CA, Cert: peer.Cert, Key: peer.Key},
	}
	if _, err := os.Stat(dirs.Refound()); err == nil {
		s.unit = g.Add("refound", rekey.Refound{Request: dirs.Refound(), CA: pkiFile(dirs, "ca.crt"), Dial: s.members.Dial}, s.unit)
	}
	return s
}

// several reports whether there may be other servers.
func (s storage) several(ctx context.Context) (bool, error) {
	if s.member == nil {
		return true, nil
	}
	members, err := s.members.List(ctx)
	return len(members) > 1, err
}

// beforeAdd makes this server ready for another member: from then on it is not the only one that may lead, and its
// own member can be reached.
func (s storage) beforeAdd(ctx context.Context, lead *leaderelection.Leadership) error {
	if err := lead.Contest(ctx); err != nil {
		return fmt.Errorf("sharing the lead with another server: %w", err)
	}
	return s.member.OpenPeers(ctx)
}

// remembered is what this server knows of its cluster by now: others may have joined since the front started. What
// cannot be read, the front has told of.
func remembered(cfg config.Config) join.Memory {
	memory, err := join.Recall(cfg.Dirs.ServerCluster())
	if err != nil {
		return join.Memory{}
	}
	return memory
}

// otherServers are HOST:PORT of the APIs of other servers, as far as anything on this one knows them.
func otherServers(cfg config.Config) []string {
	balanced, _ := state.ReadAPIServers(cfg.Dirs.Servers()) // one of several sources
	all := slices.Concat(cfg.Join.Servers, remembered(cfg).Servers, balanced.Servers, balanced.Former)
	own := func(server string) bool {
		at, err := netip.ParseAddrPort(server)
		return err == nil && at.Port() == cfg.API.Port && (at.Addr() == cfg.API.Advertise || slices.Contains(cfg.Node.IPs, at.Addr()))
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), own)
}
