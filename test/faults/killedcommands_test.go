package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// killing is a cluster with Secrets and ConfigMaps. The commands of its first server are killed.
type killing struct {
	*arena
	server *hosts.Host
	kept   int // how many of each were made
	usual  map[string]time.Duration
}

// These end the names of kinds for which, in place of the command, the control plane of the server is killed, or another server loses power and boots again.
const andControlPlane, andOtherServer = "-and-control-plane", "-and-another-server"

// parts is into how many the duration of a command is divided: it is killed at the end of each but the last.
const parts = 8

// TestKilledCommands kills the commands that change keys and certificates, or a server meanwhile, at all moments, and repeats them: each comes to the end that it
// has undisturbed, and nothing is lost.
func TestKilledCommands(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	var kinds, ofThree []string
	for _, c := range killedCommands() {
		if kinds = append(kinds, c.name); c.served {
			kinds = append(kinds, c.name+andControlPlane)
		}
		if c.served && !c.local {
			ofThree = append(ofThree, c.name+andOtherServer)
		}
	}
	for _, one := range []struct {
		kinds []string
		begin func() *arena
	}{
		{kinds, func() *arena { return newArenaOf(t, sealedServer(), writePassphrase) }},
		{ofThree, func() *arena { return newArenaOf(t, hosts.Plan{Servers: 3}, func(*hosts.Host) {}) }},
	} {
		var k *killing
		verdicts.Class{Name: "killed-command", Kinds: one.kinds, Long: parts - 1}.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
			if k != nil && k.broken {
				k.end()
				k = nil
			}
			if k == nil {
				k = newKilling(one.begin())
				k.create(500)
			}
			k.t, k.broken, k.random = sub, true, rand.New(rand.NewPCG(seed, uint64(len(kind))))
			k.tryPart(kind, seed, row)
			k.broken = sub.Failed()
		})
		if k != nil {
			k.end()
		}
	}
}

// tryPart kills a command, or what the kind names, at the end of a part of what the command takes.
func (k *killing) tryPart(kind string, seed uint64, row *verdicts.Row) {
	k.t.Helper()
	name, _, _ := strings.Cut(kind, "-and-")
	victim := strings.TrimPrefix(kind, name)
	c := killedCommands()[slices.IndexFunc(killedCommands(), func(c killedCommand) bool { return c.name == name })]
	before := k.prepare(c)
	if k.usual[name] == 0 {
		began := time.Now()
		k.server.Coracle(c.args...)
		k.usual[name] = time.Since(began)
		k.t.Logf("undisturbed: %s", short(k.usual[name]))
		before = k.prepare(c)
	}
	began := time.Now()
	row.Seen = k.try(c, before, k.usual[name]*time.Duration(1+(seed-1)%(parts-1))/parts, victim)
	row.Acknowledged, row.Seconds = 2*k.kept, time.Since(began).Seconds()
}

// killSome is the short form, on a server with a few Secrets: any two of the commands are killed once, at any moment.
func killSome(t *testing.T, a *arena) {
	a.t = t
	k := newKilling(a)
	k.create(60)
	all := killedCommands()
	for _, i := range rand.Perm(len(all))[:2] {
		k.try(all[i], k.prepare(all[i]), rand.N(all[i].usual), "")
	}
}

func newKilling(a *arena) *killing {
	return &killing{arena: a, server: a.Servers[0], usual: map[string]time.Duration{}}
}

// sealedServer is a server that seals the keys of Secrets with a passphrase, which writePassphrase writes.
func sealedServer() hosts.Plan {
	return hosts.Plan{Servers: 1, ServerArgs: []string{"--secrets-encryption-passphrase-file=/etc/coracle/passphrase"}}
}

func writePassphrase(h *hosts.Host) {
	_ = os.WriteFile(h.Path("/etc/coracle/passphrase"), []byte("the word of the house\n"), 0o600) // without it the server does not start
}

// create makes further Secrets and ConfigMaps. The content of each is its name.
func (k *killing) create(n int) {
	k.t.Helper()
	set, err := k.Client(k.server, hosts.OwnAPI)
	if err != nil {
		k.t.Fatal(err)
	}
	for range n {
		name := fmt.Sprintf("kept-%d", k.kept)
		about := metav1.ObjectMeta{Name: name}
		_, errSecret := set.CoreV1().Secrets("default").Create(k.t.Context(), &corev1.Secret{ObjectMeta: about, Data: map[string][]byte{"name": []byte(name)}}, metav1.CreateOptions{})
		_, errMap := set.CoreV1().ConfigMaps("default").Create(k.t.Context(), &corev1.ConfigMap{ObjectMeta: about, Data: map[string]string{"name": name}}, metav1.CreateOptions{})
		if err := errors.Join(errSecret, errMap); err != nil {
			k.t.Fatal(err)
		}
		k.kept++
	}
}

// lost returns an error if one of them cannot be read from one of the servers.
func (k *killing) lost() error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for _, h := range k.Servers {
		set, err := k.Client(h, hosts.OwnAPI)
		if err != nil {
			return err
		}
		secrets, err := set.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		configMaps, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		there := map[string]int{}
		for _, one := range secrets.Items {
			there[string(one.Data["name"])]++
		}
		for _, one := range configMaps.Items {
			there[one.Data["name"]]++
		}
		for i := range k.kept {
			if name := fmt.Sprintf("kept-%d", i); there[name] != 2 {
				return fmt.Errorf("of the Secret and the ConfigMap %s, %s has %d with their content", name, h.Name, there[name])
			}
		}
	}
	return nil
}

// prepare returns the state before a command. It runs the commands that give that one something to do.
func (k *killing) prepare(c killedCommand) (before keyState) {
	k.t.Helper()
	ask := func() { before = k.await("the state before", func(keyState) error { return nil }) }
	if ask(); c.ready != nil && !c.ready(before) {
		for _, args := range c.first {
			k.server.Coracle(args...)
		}
		ask()
	}
	return before
}

// await waits until the state is as it should be, and returns it.
func (k *killing) await(what string, right func(keyState) error) (s keyState) {
	k.t.Helper()
	k.arena.await(what, func() (err error) {
		if s, err = k.state(); err == nil {
			err = right(s)
		}
		return err
	})
	return s
}

// try kills a command, or the victim while it runs, after a time, and repeats it until it ends. It returns how that went.
func (k *killing) try(c killedCommand, before keyState, after time.Duration, victim string) (seen string) {
	k.t.Helper()
	began := time.Now()
	killed, err := k.interrupt(c, after, victim)
	seen = "killed"
	if !killed && err == nil {
		seen = "ended"
	}
	k.t.Logf("%s, killed after %s: %s, %v", c.name, short(after), seen, err)
	between := before
	if err != nil {
		between = k.await("the state after the kill", func(keyState) error { return nil })
	}
	for err != nil {
		if time.Since(began) > patience {
			k.t.Fatalf("%s: %v", c.name, err)
		}
		if !verdicts.Long() {
			k.Unlock(k.server)
		}
		if _, err = k.server.TryCoracle(c.args...); err != nil && victim == "" && !strings.Contains(err.Error(), " are being changed by process ") {
			k.t.Fatalf("%s, repeated: %v", c.name, err)
		}
	}
	k.t.Logf("ended after %s; it was at %q with %d keys, and then at %q with %d", short(time.Since(began)), before.Stage, before.newest(), between.Stage, between.newest())
	k.await("the state after "+c.name, func(now keyState) error {
		if !now.HashMatch || now.OtherKeys > 0 {
			return fmt.Errorf("a server uses other keys than the cluster's: %+v", now)
		}
		if right, wrong := now.written(); now.atRest() && (wrong > 0 || right < k.kept) {
			return fmt.Errorf("%d Secrets are as they should be, and %d are not", right, wrong)
		}
		return c.after(before, between, now)
	})
	k.arena.await("nothing is lost", k.lost)
	return seen
}

// interrupt runs the command and kills it, or the victim meanwhile.
func (k *killing) interrupt(c killedCommand, after time.Duration, victim string) (killed bool, err error) {
	k.t.Helper()
	if victim == "" {
		return k.server.KillCoracle(after, c.args...)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := k.server.TryCoracle(c.args...)
		ended <- err
	}()
	<-time.After(after)
	if victim == andControlPlane {
		k.killChild(k.server, "control-plane")
		return true, <-ended
	}
	lost := k.Servers[1+k.random.IntN(2)]
	k.kill(lost)
	err = <-ended
	k.boot(lost) // all servers are asked at the end
	return true, err
}
