package localcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
)

// Maker makes clusters.
type Maker struct {
	Store Store
	// HolderArgs are the arguments with which this program calls RunHolder. The cluster's name is added to them.
	HolderArgs []string
	// Version is that of coracle, Payload the directory with its unpacked payload.
	Version, Payload string
	// UserConfig is the path of the user's kubeconfig. "" does not change it.
	UserConfig string
	// Logs is where the nodes' logs are kept if a cluster fails to start. The zero value is a new directory.
	Logs Artifacts
	// Report is called with lines about the progress.
	Report func(string)

	owner Process // the process with whose end the cluster is removed; none if it stays
}

// Up makes a cluster as planned and returns when all nodes are Ready, or lack only the network of its OtherNetwork. If that fails, or ctx ends before, the cluster
// is removed again.
func (m Maker) Up(ctx context.Context, p Plan) (Record, error) {
	r, conn, err := m.make(ctx, p)
	if err == nil {
		conn.Close()
	}
	return r, err
}

// make makes a cluster and returns the connection to its holder, which removes the cluster when the connection is closed, unless it was
// detached.
func (m Maker) make(ctx context.Context, p Plan) (Record, net.Conn, error) {
	r, err := m.addRecord(ctx, p)
	if err != nil {
		return r, nil, err
	}
	conn, err := m.startHolder(r)
	if err == nil {
		err = m.await(ctx, conn, r, p)
	}
	if err == nil {
		r, err = m.Store.Load(p.Name)
	}
	if err == nil {
		err = m.shareImages(ctx, r, p)
	}
	if err == nil {
		return r, conn, nil
	}
	if conn != nil {
		defer conn.Close()
	}
	kept := ""
	if ctx.Err() == nil || m.owner.none() { // an interrupted session leaves nothing
		kept = m.keepLogs(p.Name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if _, errDown := m.Store.Down(ctx, p.Name); errDown != nil && !isNotFound(errDown) {
		err = errors.Join(err, fmt.Errorf("removing the cluster again: %w", errDown))
	}
	if kept != "" {
		err = fmt.Errorf("%w\nThe logs of the nodes are in %s.", err, kept)
	}
	return r, nil, err
}

// addRecord writes the record of a new cluster, which reserves its name and network.
func (m Maker) addRecord(ctx context.Context, p Plan) (Record, error) {
	unlock, err := m.Store.lock(ctx)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	r, err := m.newRecord(p)
	if err != nil {
		m.Store.tidy()
	}
	return r, err
}

// newRecord writes the record. The caller holds the store's lock.
func (m Maker) newRecord(p Plan) (Record, error) {
	all, err := m.Store.List()
	if err != nil {
		return Record{}, err
	}
	for _, o := range all {
		if o.Name == p.Name {
			return o, fmt.Errorf("there is a cluster %s already (%s); remove it with coracle down %s, or choose another name", o.Name, o.State, o.Name)
		}
	}
	if _, err := netlink.LinkByName(linkName(p.Name)); err == nil {
		return Record{}, fmt.Errorf("this machine has an interface %s already: a cluster %s is kept elsewhere, see --data-dir; choose another name",
			linkName(p.Name), p.Name)
	}
	r := Record{
		Name: p.Name, Version: m.Version, Created: time.Now().Round(0), State: Starting, Link: linkName(p.Name),
		Payload: m.Payload, Images: p.Images, Config: p.Config, Ephemeral: p.Ephemeral, From: p.From, Owner: m.owner,
	}
	if !m.owner.none() {
		r.CommandDir = newCommandDir(p.Name)
	}
	if r.Network, err = freeNetwork(all); err != nil {
		return r, err
	}
	config, err := m.planNodes(&r, p)
	if err != nil {
		return r, err
	}
	if r.UserConfig, err = planUserConfig(m.UserConfig); err != nil {
		return r, err
	}
	return r, m.Store.add(r, config)
}

// add makes a cluster's directory, with the text of its configuration unless that is another's file. The record comes first: what is in a directory without
// one is not coracle's.
func (s Store) add(r Record, config string) error {
	s.discardUnfinished(r.Name)
	if paths.Exists(s.dir(r.Name)) {
		return fmt.Errorf("%s is there already and is no cluster's: choose another name for the cluster, or another --data-dir", s.dir(r.Name))
	}
	err := s.save(r)
	if err == nil {
		err = os.MkdirAll(s.logs(r.Name), 0o700)
	}
	if err == nil && config != "" {
		err = atomicfile.Write(r.Config, []byte(config), 0o600)
	}
	if err != nil {
		err = errors.Join(err, s.removeFiles(r.Name))
	}
	return err
}

// await follows the holder's events until all nodes are Ready, and detaches it if the cluster stays.
func (m Maker) await(ctx context.Context, conn net.Conn, r Record, p Plan) error {
	m.Report(fmt.Sprintf("starting %s in network %s", quantity.Count(len(r.Nodes), "node", "nodes"), r.Network))
	waited, cancel := context.WithTimeout(ctx, p.Wait)
	defer cancel()
	stop := context.AfterFunc(waited, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	progress := newProgress(r, m.Report)
	err := progress.follow(conn)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case waited.Err() != nil:
		return exitcode.With(exitcode.TimedOut, fmt.Errorf("the nodes were not Ready within %s: %s", p.Wait, progress.missing()))
	case err != nil, !m.owner.none():
		return err
	}
	if err := m.Store.mergeUserConfig(r); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, detachOrder+"\n"); err != nil {
		return fmt.Errorf("detaching from the process that holds the cluster: %w", err)
	}
	return nil
}

// startHolder starts the holder in its own session and mount namespace, and returns the connection to it.
func (m Maker) startHolder(r Record) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connecting with the process that holds the cluster: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "holder"), os.NewFile(uintptr(fds[1]), "maker")
	defer ours.Close()
	defer theirs.Close()
	log, err := os.OpenFile(m.Store.holderLog(r.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append(append([]string{os.Args[0]}, m.HolderArgs...), r.Name)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process that holds cluster %s: %w", r.Name, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it if it ends before this process
	return net.FileConn(ours)
}

// progress is the state of a cluster that starts.
type progress struct {
	say     func(string)
	began   time.Time
	waiting map[string]string // by node that is not Ready: what it waits for
	nodes   []Node
}

func newProgress(r Record, say func(string)) *progress {
	p := &progress{say: say, began: time.Now(), waiting: map[string]string{}, nodes: r.Nodes}
	for _, n := range r.Nodes {
		p.waiting[n.Name] = "its host is not up"
	}
	return p
}

// follow reads the holder's events until the cluster is ready or has failed.
func (p *progress) follow(from io.Reader) error {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("reading from the process that holds the cluster: %w", err)
		}
		switch {
		case e.Error != "":
			return errors.New(e.Error)
		case e.Ready:
			return nil
		case e.NodeReady:
			delete(p.waiting, e.Node)
			state := "Ready"
			if e.OtherNetwork {
				state = "up"
			}
			p.say(fmt.Sprintf("%s is %s after %.1f s", e.Node, state, time.Since(p.began).Seconds()))
		case e.Node != "":
			p.waiting[e.Node] = e.Text
		}
	}
	return errors.New("the process that holds the cluster ended")
}

// missing says what the nodes wait for that are not Ready.
func (p *progress) missing() string {
	var parts []string
	for _, n := range p.nodes {
		if text, ok := p.waiting[n.Name]; ok {
			parts = append(parts, n.Name+": "+text)
		}
	}
	return strings.Join(parts, "; ")
}
