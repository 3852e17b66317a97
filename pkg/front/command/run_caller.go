package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
	"github.com/coracle-dev/coracle/pkg/front"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// caller is the user that a command runs as.
type caller struct {
	credential *syscall.Credential // nil: the credential of this process
	user       *user.User          // nil if credential is
}

// caller returns the user who called coracle run, through sudo or not.
func (o runOptions) caller() (c caller, err error) {
	uid := os.Getenv("SUDO_UID")
	if o.asRoot || uid == "" || uid == "0" || os.Geteuid() != 0 {
		return c, nil
	}
	if c.user, err = user.LookupId(uid); err != nil {
		return c, fmt.Errorf("finding out who called sudo: %w; --root runs the command as root", err)
	}
	groups, err := c.user.GroupIds()
	if err != nil {
		return c, fmt.Errorf("finding out which groups %s is in: %w; --root runs the command as root", c.user.Username, err)
	}
	c.credential = &syscall.Credential{}
	for _, to := range []struct {
		text string
		id   *uint32
	}{{c.user.Uid, &c.credential.Uid}, {c.user.Gid, &c.credential.Gid}} {
		id, err := strconv.ParseUint(to.text, 10, 32)
		if err != nil {
			return c, fmt.Errorf("finding out who called sudo: %w", err)
		}
		*to.id = uint32(id)
	}
	for _, g := range groups {
		if id, err := strconv.ParseUint(g, 10, 32); err == nil {
			c.credential.Groups = append(c.credential.Groups, uint32(id))
		}
	}
	return c, nil
}

// owner returns the user and group that own the command's files.
func (c caller) owner() (uid, gid int) {
	if c.credential == nil {
		return os.Geteuid(), os.Getegid()
	}
	return int(c.credential.Uid), int(c.credential.Gid)
}

// artifacts describes a directory of files for the caller, without what looks like a secret and without the given ones.
func (c caller) artifacts(dir string, secrets ...string) localcluster.Artifacts {
	uid, gid := c.owner()
	return localcluster.Artifacts{Dir: dir, UID: uid, GID: gid, Clean: redact.New(secrets...).String}
}

// variables are those that lead a program to the cluster, besides PATH.
func variables(h localcluster.CommandDir) map[string]string {
	return map[string]string{"KUBECONFIG": h.Kubeconfig(), "KUBECACHEDIR": h.Cache(), "CORACLE_CLUSTER": h.Cluster}
}

// environ returns the command's environment. PATH is that of this process.
func (c caller) environ(h localcluster.CommandDir) []string {
	own := variables(h)
	if c.user != nil {
		own["HOME"], own["USER"], own["LOGNAME"] = c.user.HomeDir, c.user.Username, c.user.Username
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, ours := own[name]
		return ours
	})
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// extendPath appends a directory to PATH, for the command and for finding it.
func extendPath(dir string) error {
	path := os.Getenv("PATH")
	if path == "" {
		path = front.DefaultPath
	}
	return os.Setenv("PATH", strings.TrimRight(path, string(filepath.ListSeparator))+string(filepath.ListSeparator)+dir)
}

// trial is one run of a command with its cluster.
type trial struct {
	runOptions
	session *localcluster.Session
	who     caller
	signals *interrupts
	began   time.Time
	ran     bool          // the command was started
	lines   <-chan string // of standard input, if there is no command
	passed  bool          // the program at standard input says that nothing went wrong
}

// run makes the cluster ready for the command and runs it. It returns the command's exit code.
func (t *trial) run() (int, error) {
	dir, err := t.session.CommandDir(t.who.owner())
	if err != nil {
		return 0, err
	}
	if err := extendPath(dir.Bin()); err != nil {
		return 0, err
	}
	if err := t.deploy(); err != nil {
		return 0, err
	}
	if t.listen != "" {
		if err := t.session.ListenForAPI(t.signals.ctx, t.listen); err != nil {
			return 0, err
		}
	}
	if t.output != "" {
		return t.hold(dir)
	}
	j, err := newJob(t.command, t.who.environ(dir), t.who.credential)
	if err != nil {
		return 0, err
	}
	t.say(fmt.Sprintf("ready after %.1f s, running %s", time.Since(t.began).Seconds(), brief(strings.Join(t.command, " "))))
	var s stopper
	if t.signals.ctx.Err() != nil {
		return 0, context.Cause(t.signals.ctx)
	}
	code, err := j.run(func(group int) {
		t.ran = true
		s.group = group
		if missed := t.signals.give(s.take); missed != nil {
			s.take(missed)
		}
		if err := t.session.Guard(group); err != nil {
			exitcode.Print(os.Stderr, err)
		}
	})
	t.signals.give(nil)
	s.done()
	_ = t.session.Guard(0) // Close reports the same error
	return code, err
}

// deploy applies the manifests, one of which may bring the nodes' network, within the time that the cluster may take to be ready.
func (t *trial) deploy() error {
	late := exitcode.With(exitcode.TimedOut, fmt.Errorf("the cluster could not be used within %s", t.plan.Wait))
	ctx, cancel := context.WithDeadlineCause(t.signals.ctx, t.began.Add(t.plan.Wait), late)
	defer cancel()
	for _, path := range t.manifests {
		if err := t.session.Apply(ctx, path); err != nil {
			return err
		}
	}
	if len(t.manifests) > 0 {
		t.say("applied " + strings.Join(t.manifests, ", "))
	}
	if err := t.session.AwaitNetwork(ctx); err != nil || !t.rollout || len(t.manifests) == 0 {
		return err
	}
	return t.session.RollOut(ctx)
}

// collectPatience bounds the collection of artifacts.
const collectPatience = time.Minute

// collect writes logs, events and states to the directory for artifacts, or prints some of them if something failed.
func (t *trial) collect(failed bool) {
	if t.signals.ctx.Err() != nil && !t.ran {
		return
	}
	// A signal from now on ends the wait for the cluster.
	ctx, cancel := context.WithTimeout(t.signals.ctx, collectPatience)
	defer cancel()
	switch {
	case t.artifacts != "":
		text, err := t.session.Secrets(ctx)
		a := t.who.artifacts(t.artifacts, secretsIn(text)...)
		if a.Unsure = err != nil; a.Unsure {
			err = fmt.Errorf("ConfigMaps and logs of pods are left out of the artifacts, because the Secrets to remove from them are not known: %w", err)
		}
		if err := errors.Join(err, t.session.Collect(ctx, a)); err != nil {
			exitcode.Print(os.Stderr, err)
		}
		t.say("artifacts are in " + t.artifacts)
	case failed && !t.quiet:
		if text := t.session.Digest(ctx); text != "" {
			exitcode.Print(os.Stderr, fmt.Errorf("%s--artifacts DIR keeps the rest", text))
		}
	}
}

// secretsIn returns the secret values in a list of Secrets in JSON.
func secretsIn(text []byte) (values []string) {
	var list struct {
		Items []struct{ Data map[string][]byte }
	}
	_ = json.Unmarshal(text, &list) // there is no list if the API did not answer, which is reported
	for _, secret := range list.Items {
		values = append(values, redact.SecretValues(secret.Data)...)
	}
	return values
}
