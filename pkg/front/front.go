// Package front is the process of coracle server and coracle agent: it resolves the configuration, unpacks the
// payload, joins the cluster, runs the control plane and the node as child processes, and is their init in a container.
package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// front is one run of coracle server or coracle agent.
type front struct {
	// asked is the configuration of flags, environment and files. cfg also has the cluster's settings, once they are known.
	asked, cfg config.Config
	// settle resolves the configuration again, with the cluster's settings.
	settle   func(config.Known) (config.Config, error)
	children []string // names of the child processes, in the order of their start
	began    time.Time
	systemd  supervise.Systemd
	report   *state.Recorder
	out      *output
	super    *supervise.Supervisor
	copies   *controlplaneuser.Copies // nil on an agent
	api      apiSocket
	ready    sync.Once
	became   chan struct{} // closed when everything is ready for the first time

	unpacked percent
	told     string // the last status that systemd was sent; only changed uses it, one call at a time
}

// runFront prepares what the child processes need, and runs them until a signal asks it to stop.
func runFront(cfg config.Config, settle func(config.Known) (config.Config, error), children ...string) (err error) {
	f := &front{asked: cfg, cfg: cfg, settle: settle, children: children, began: time.Now(), systemd: supervise.TakeSystemd(), became: make(chan struct{})}
	syscall.Umask(0o022)
	supervise.RaiseLimits()
	if err := f.ephemeral(); err != nil {
		return err
	}
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer func() {
		unlock()
		err = errors.Join(err, f.discard())
		if f.out != nil {
			f.out.flush()
		}
	}()

	f.out = newOutput(cfg, os.Stderr, f.view)
	defer func() { f.out.close(err) }()
	f.report = state.NewRecorder(cfg.Dirs, state.Front, version.Version)
	f.super = f.supervisor()
	f.out.start(cfg)
	ctx, done := f.signals()
	defer done()
	err = f.prepare(ctx)
	if ctx.Err() != nil { // a signal came before the child processes were started
		return nil
	}
	if err != nil {
		f.out.stop(false, "")
		return err
	}
	go f.systemd.Watch(ctx)
	f.keepCopies(ctx)
	go f.confirmUpgrade(ctx)
	go f.makeSnapshots(ctx)
	endGateway := f.serveGateway()
	err = f.live(ctx)
	endGateway(exitcode.ClassOf(err) == exitcode.Removed)
	f.sealDatabases()
	f.leaveTrial()
	if os.Getpid() == 1 {
		supervise.EndOthers(podGrace)
	}
	logrus.Info("stopped")
	if err != nil {
		f.out.stop(true, "")
		return err
	}
	f.out.stop(false, "stopped\n")
	return nil
}

// lock keeps other coracles off the data directory and the run directory until unlock is called. If a directory cannot be
// locked, the error is that of check.Start, if it finds the reason.
func (f *front) lock() (unlock func(), err error) {
	made := ledger.Open(f.cfg.Dirs)
	var locks []*os.File
	unlock = func() {
		for _, l := range locks {
			l.Close()
		}
	}
	for _, d := range []struct{ dir, lock string }{
		{f.cfg.Dirs.Data, f.cfg.Dirs.Lock()},
		{f.cfg.Dirs.Run, f.cfg.Dirs.RunLock()},
	} {
		if err = made.MkdirAll(d.dir, 0o755); err != nil {
			break
		}
		var l *os.File
		if l, err = supervise.Lock(d.lock); err != nil {
			break
		}
		locks = append(locks, l)
	}
	if err == nil {
		return unlock, nil
	}
	unlock()
	var held *supervise.HeldError
	if errors.As(err, &held) {
		return nil, inUse(err)
	}
	if found := check.Start(f.cfg, func(error) {}); found != nil {
		return nil, exitcode.With(exitcode.Unfit, found)
	}
	return nil, err
}

// prepare does everything that comes before the child processes. Each step can run again after a crash at any line.
func (f *front) prepare(ctx context.Context) error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"end leftovers", f.endLeftovers},
		{"check machine", f.checkMachine},
		{"check version", func() error { return f.serverData(upgrade.CheckData) }},
		{"join", func() error { return f.join(ctx) }},
		{"unpack", func() error { return f.unpack(ctx) }},
		{"make certificates", f.certificates},
		{"choose users", f.chooseUser},
		{"write config", f.writeResolved},
		{"record version", func() error { return f.serverData(upgrade.RecordData) }},
	}
	for _, s := range steps {
		end := f.report.Phase(s.name)
		if err := s.do(); err != nil {
			f.report.Waiting(err.Error()) // for coracle status
			return err
		}
		end()
	}
	return nil
}

func (f *front) checkMachine() error {
	for _, text := range f.cfg.Remarks {
		logrus.Warn(text)
	}
	return exitcode.With(exitcode.Unfit, check.Start(f.cfg, func(err error) { logrus.Warn(err) }))
}

func (f *front) certificates() error {
	if f.cfg.Role == config.Agent {
		return pki.EnsureAgent(f.cfg)
	}
	_, err := pki.EnsureServer(f.cfg)
	return err
}

func (f *front) writeResolved() error {
	data, err := json.MarshalIndent(f.cfg, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the resolved configuration: %w", err)
	}
	return atomicfile.WriteVolatile(f.cfg.Dirs.Resolved(), data, 0o600)
}

// drainTimeout bounds a stop that stops the pods too, whose grace period is 30 seconds by default. systemd kills after 90
// seconds.
const drainTimeout = 80 * time.Second

// podGrace is the grace period of pods that end with this process, as in a container: its engine soon kills everything.
const podGrace = time.Second

func (f *front) supervisor() *supervise.Supervisor {
	s := &supervise.Supervisor{
		Socket:   f.cfg.Dirs.NotifySocket(),
		Line:     f.line,
		OnChange: f.changed,
		Hurry:    make(chan struct{}),
	}
	if f.cfg.DrainOnStop {
		s.StopTimeout = drainTimeout
	}
	s.Programs = f.programs()
	if os.Getpid() == 1 {
		go s.Children.ReapOrphans(context.Background())
	}
	return s
}

// nodePatience is how many seconds without a sign of life the node may take. Servers replace the pods of a node that is silent for 70 s, where the last
// heartbeat may have been 10 s before it hung: until then it has to be ended, started, and heard of.
const nodePatience = 40

func (f *front) programs() (out []supervise.Program) {
	for _, child := range f.children {
		p := supervise.Program{
			Name: child,
			Path: f.cfg.Dirs.Tool("coracle-core"),
			Args: []string{child, f.cfg.Dirs.Resolved()},
			Env:  environment(f.cfg),
		}
		if child == state.Node {
			p.Patience = nodePatience
		}
		if child == state.ControlPlane && f.copies != nil {
			p.Prepare = f.prepareControlPlane
		}
		if child == state.ControlPlane {
			cfg := f.cfg
			p.Socket = func() *os.File { return f.api.lend(cfg) }
			f.api.mayWait = func() bool { return clientsWait(cfg) }
		}
		out = append(out, p)
	}
	return out
}

// line takes a line that a child process prints, or that the supervisor reports: then program is empty.
func (f *front) line(program, line string) {
	if program == "" {
		logrus.Error(line)
		return
	}
	f.out.program(program, line)
}

// changed takes the states of the child processes: it writes them to the state file and reports to systemd.
func (f *front) changed(all []state.Child) {
	ready := allReady(all)
	f.api.follow(all)
	f.report.Update(func(p *state.Process) {
		p.Children = all
		if ready && p.Ready.IsZero() {
			p.Ready = time.Now()
		}
	})
	if ready {
		f.ready.Do(f.welcome)
	}
	if text := summary(all); text != f.told {
		f.told = text
		f.systemd.Status(text)
	}
}

// welcome reports that everything is ready for the first time.
func (f *front) welcome() {
	close(f.became)
	f.systemd.Notify("READY=1", fmt.Sprintf("MAINPID=%d", os.Getpid()))
	logrus.WithField("took", since(f.began)).Info("coracle is ready")
	f.out.stop(true, welcomeText(f.cfg, since(f.began)))
	debug.FreeOSMemory() // unpacking and waiting took more memory than supervising needs
}

// view returns what the display shows.
func (f *front) view() progress.View {
	v := progress.View{Title: "coracle " + version.Version, Began: f.began, Now: time.Now(), Note: f.unpacked.String()}
	if f.report != nil {
		v.Front = f.report.Snapshot()
	}
	for _, child := range f.children {
		if p, ok, err := state.Read(f.asked.Dirs, child); ok && err == nil {
			v.Children = append(v.Children, p)
		}
	}
	return v
}
