package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// condition is something to wait for.
type condition struct {
	name    string
	process string // the child process whose state has the unit
	unit    string
	// probe tests the condition once the unit is ready. It may be nil.
	probe func(context.Context, config.Config) error
	// off returns why a configuration has nothing to wait for, "" if it has. It may be nil.
	off func(config.Config) string
}

func conditions() []condition {
	return []condition{
		{"api", state.ControlPlane, "kube-apiserver", probeAPI, noControlPlane},
		{"node", state.Node, "node-ready", nil, nil},
		{"dns", state.Node, "dns", probeDNS, noDNS},
	}
}

func noControlPlane(cfg config.Config) string {
	if cfg.Role == config.Agent {
		return "an agent has no API of its own"
	}
	return ""
}

func noDNS(cfg config.Config) string {
	if cfg.Disabled("dns") {
		return "it is switched off with --disable=dns"
	}
	return ""
}

const (
	waitLong = `Wait until a cluster that was started on this machine can be used: the API answers, the node takes pods, names
resolve. It may be called before coracle itself is started. The exit code is 4 if it takes longer than --timeout.`
	waitExample = `
# Start in the background and go on when everything can be used
coracle server & coracle wait

# Only for the API, for half a minute
coracle wait --for=api --timeout=30s

# Only look
coracle wait --timeout=0`
)

// waitCommand returns once all that was asked for is ready.
func waitCommand() *cobra.Command {
	c := &cobra.Command{Use: "wait", Short: "Wait until a starting cluster can be used", Long: waitLong, Example: waitExample, Args: NoArgs}
	c.Flags().SortFlags = false
	names := c.Flags().StringSlice("for", nil, "What to wait for, of api, node and dns (default all of them)")
	timeout := c.Flags().Duration("timeout", 5*time.Minute, "How long to wait at most; 0 only looks")
	quiet := c.Flags().BoolP("quiet", "q", false, "Print nothing but errors")
	lax := c.Flags().Bool("without-network", false, "Do not wait for the network of a plug-in of yours (--flannel-backend=none), without which a node is not Ready")
	w := whereFlags(c)
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"api", "node", "dns"}, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, _ []string) error {
		wanted, err := wantedConditions(*names)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		if *timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, *timeout)
			defer cancel()
		}
		var out io.Writer = os.Stderr
		if *quiet {
			out = io.Discard
		}
		return (&waiting{where: *w, wanted: wanted, explicit: len(*names) > 0, out: out, once: *timeout <= 0, withoutNetwork: *lax}).run(ctx)
	}
	return c
}

func wantedConditions(names []string) (wanted []condition, err error) {
	if len(names) == 0 {
		return conditions(), nil
	}
	for _, name := range names {
		i := slices.IndexFunc(conditions(), func(c condition) bool { return c.name == name })
		if i < 0 {
			return nil, exitcode.Usagef("--for: %q is none of api, node, dns", name)
		}
		wanted = append(wanted, conditions()[i])
	}
	return wanted, nil
}

// waiting is one run of coracle wait.
type waiting struct {
	where    where
	wanted   []condition
	explicit bool // the conditions were named: one that is switched off is an error
	out      io.Writer
	once     bool
	// withoutNetwork takes a node for ready that lacks only a network which is not coracle's.
	withoutNetwork bool
	printed        map[string]string // the last message of each condition
}

// retryProbe is the pause after a failed probe. Only units that are ready are probed.
const retryProbe = 50 * time.Millisecond

func (w *waiting) run(ctx context.Context) error {
	dirs := w.where.dirs()
	changed, err := state.Watch(ctx, dirs)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("looking at %s is for root only: put sudo before the command", dirs.Run)
	}
	if err != nil {
		return err
	}
	w.printed = map[string]string{}
	for {
		missing, probed, err := w.look(ctx, dirs)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		if w.once {
			return exitcode.With(exitcode.TimedOut, fmt.Errorf("not ready: %s", strings.Join(missing, "; ")))
		}
		var again <-chan time.Time // nil unless a probe failed: changes of units are events
		if probed {
			again = time.After(retryProbe)
		}
		select {
		case <-ctx.Done():
			return exitcode.With(exitcode.TimedOut, fmt.Errorf("gave up waiting: %s", strings.Join(missing, "; ")))
		case <-changed:
		case <-again:
		}
	}
}

// look returns what is not ready yet, and why. probed is true if a unit is ready and its probe failed.
func (w *waiting) look(ctx context.Context, dirs paths.Dirs) (missing []string, probed bool, err error) {
	cfg, ok, err := w.where.configIn(dirs)
	if err != nil {
		return nil, false, err
	}
	now := processes{cfg.Dirs, map[string]process{}}
	for _, c := range w.wanted {
		why := "coracle has not been started"
		if ok {
			if c.off != nil && c.off(cfg) != "" {
				if w.explicit {
					return nil, false, fmt.Errorf("waiting for %s makes no sense: %s", c.name, c.off(cfg))
				}
				continue
			}
			if why = now.unready(c); w.withoutNetwork && cfg.Network.Backend == config.BackendNone && strings.Contains(why, networkMissing) {
				why = ""
			}
		}
		if why == "" && c.probe != nil {
			if err := c.probe(ctx, cfg); err != nil {
				why, probed = err.Error(), true
			}
			clear(now.read) // a probe may take seconds
		}
		w.say(c.name, why)
		if why != "" {
			missing = append(missing, c.name+": "+why)
		}
	}
	return missing, probed, nil
}

// say prints the state of a condition if it has changed.
func (w *waiting) say(name, why string) {
	news, _, _ := strings.Cut(why, ": ") // the rest differs with each try
	if last, ok := w.printed[name]; ok && last == news {
		return
	}
	w.printed[name] = news
	if why == "" {
		fmt.Fprintln(w.out, name+" is ready")
		return
	}
	fmt.Fprintf(w.out, "waiting for %s: %s\n", name, brief(why))
}

// networkMissing is part of what a node says that is not Ready only because no network plug-in is installed. The kubelet puts several reasons in brackets.
const networkMissing = "KubeletNotReady: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"

// brief shortens a text to one line of at most 160 bytes.
func brief(text string) string {
	const enough = 160
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > enough {
		return strings.ToValidUTF8(text[:enough], "") + "..."
	}
	return text
}

// processes reads the states of processes, each once.
type processes struct {
	dirs paths.Dirs
	read map[string]process
}

type process struct {
	state.Process
	runs bool
	err  error
}

func (r processes) named(name string) process {
	p, ok := r.read[name]
	if !ok {
		p.Process, ok, p.err = state.Read(r.dirs, name)
		p.runs = ok && p.Alive()
		r.read[name] = p
	}
	return p
}

// unready returns why a condition's unit is not ready, "" if it is ready.
func (r processes) unready(c condition) string {
	front := r.named(state.Front)
	if front.err != nil {
		return front.err.Error()
	}
	if !front.runs {
		return "coracle is not running"
	}
	for _, phase := range front.Phases {
		if phase.Waiting != "" {
			return "coracle is waiting to join: " + phase.Waiting
		}
	}
	p := r.named(c.process)
	if p.err != nil {
		return p.err.Error()
	}
	if !p.runs {
		why := "the process " + c.process + " has not started"
		if last := front.Child(c.process).LastExit; last != "" {
			why += "; the last one " + last
		}
		return why
	}
	if u, ok := p.Unit(c.unit); ok {
		return unreadyUnit(u, p.Units)
	}
	return "the process " + c.process + " has not come to " + c.unit
}

func unreadyUnit(u lifecycle.Status, all []lifecycle.Status) string {
	switch {
	case u.State == lifecycle.Ready && u.Waiting == "":
		return ""
	case u.State == lifecycle.Ready, u.State == lifecycle.Starting && u.Waiting != "":
		return fmt.Sprintf("%s is not ready: %s", u.Name, u.Waiting)
	case u.State == lifecycle.Waiting:
		return u.Name + " is not started: it needs " + strings.Join(notReady(u.Needs, all), ", ")
	case u.State == lifecycle.Failed:
		return u.Name + ": " + u.Error
	}
	return u.Name + " is " + string(u.State)
}

// notReady lists those of the needs that are not ready.
func notReady(needs []string, all []lifecycle.Status) (names []string) {
	for _, u := range all {
		if u.State != lifecycle.Ready && slices.Contains(needs, u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}
