package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/test/hosts"
)

// keyState is what the commands that show keys and certificates say.
type keyState struct {
	Enable, HashMatch, Passphrase bool
	Stage                         string
	Keys                          []struct {
		Name    string
		Active  bool
		Secrets int
	}
	NotEncrypted, OtherKeys int
	// Leaves are the certificates by name, and Authorities the subjects of those in ca.crt: the first signs.
	Leaves      map[string]leaf
	Authorities []string
}

// leaf is a certificate that is not an authority's.
type leaf struct{ Issuer, NotAfter string }

// state asks for it. certificate check fails if a certificate is not as it should be.
func (k *killing) state() (s keyState, err error) {
	var all []struct{ Name, Issuer, NotAfter string }
	var unread error
	var both sync.WaitGroup
	both.Go(func() { unread = k.tell(&all, "certificate", "check") })
	err = k.tell(&s, "secrets-encrypt", "status")
	both.Wait()
	s.Leaves = map[string]leaf{}
	for _, one := range all {
		if !strings.HasSuffix(one.Name, "ca") {
			s.Leaves[one.Name] = leaf{one.Issuer, one.NotAfter}
		}
	}
	s.Authorities = k.authorities(k.server)
	for _, h := range k.Servers {
		if theirs := k.authorities(h); !slices.Equal(theirs, s.Authorities) || len(theirs) == 0 {
			err = errors.Join(err, fmt.Errorf("%s has the authorities %q, and %s has %q", h.Name, theirs, k.server.Name, s.Authorities))
		}
	}
	return s, errors.Join(err, unread)
}

// authorities are the subjects of the authorities that a server has.
func (k *killing) authorities(h *hosts.Host) (all []string) {
	data, _ := os.ReadFile(h.Data("server", "pki", "ca.crt")) // without it there are none
	for _, cert := range pki.ParseCerts(data) {
		all = append(all, cert.Subject.String())
	}
	return all
}

// tell decodes what a command tells.
func (k *killing) tell(into any, args ...string) error {
	out, err := k.server.TryCoracle(append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// newest is the number of the key that was made last.
func (s keyState) newest() (n int) {
	if len(s.Keys) > 0 {
		_, _ = fmt.Sscanf(s.Keys[len(s.Keys)-1].Name, "key%d", &n)
	}
	return n
}

// active is the number of the key that is written with; 0 if there is none.
func (s keyState) active() (n int) {
	for _, one := range s.Keys {
		if one.Active {
			_, _ = fmt.Sscanf(one.Name, "key%d", &n)
		}
	}
	return n
}

// written is how many Secrets are encrypted with the key that is written with, or not encrypted if none is, and the number of the others.
func (s keyState) written() (right, wrong int) {
	for _, one := range s.Keys {
		if one.Active {
			right += one.Secrets
		} else {
			wrong += one.Secrets
		}
	}
	if s.Enable {
		return right, wrong + s.NotEncrypted + s.OtherKeys
	}
	return s.NotEncrypted, right + wrong + s.OtherKeys
}

// atRest reports whether no change of the key is under way.
func (s keyState) atRest() bool { return s.Stage == "start" || s.Stage == "reencrypt_finished" }

// killedCommand is a command that is killed and repeated.
type killedCommand struct {
	name string // of the kind
	args []string
	// ready reports whether the command has something to do; if not, the commands first give it that.
	ready func(keyState) bool
	first [][]string
	// after checks what the command has changed. between is what was there when it had been killed, if it was repeated then.
	after  func(before, between, now keyState) error
	served bool          // the server does work for it
	local  bool          // it is about this server alone
	usual  time.Duration // what it takes undisturbed with few Secrets
}

// killedCommands are the commands. Each is ready after those before it.
func killedCommands() []killedCommand {
	secrets := func(words ...string) []string { return append([]string{"secrets-encrypt"}, words...) }
	ca := func(words ...string) []string { return append([]string{"certificate", "rotate-ca"}, words...) }
	enabled := func(s keyState) bool { return s.Enable && s.atRest() }
	enable := [][]string{secrets("enable")}
	changing := func(s keyState) bool { return len(s.Authorities) > 1 }
	return []killedCommand{
		{name: "prepare", args: secrets("prepare"), ready: enabled, first: enable, usual: 2 * time.Second, after: func(before, _, now keyState) error {
			return now.keys("prepare", before.active(), before.newest()+1)
		}},
		{name: "rotate", args: secrets("rotate"), ready: func(s keyState) bool { return s.Stage == "prepare" }, first: [][]string{secrets("prepare")}, usual: 2 * time.Second,
			after: func(before, _, now keyState) error { return now.keys("rotate", before.newest(), before.newest()) }},
		{name: "reencrypt", args: secrets("reencrypt"), ready: func(s keyState) bool { return s.Stage == "rotate" }, first: [][]string{secrets("prepare"), secrets("rotate")}, usual: time.Second,
			after: func(before, _, now keyState) error {
				return now.keys("reencrypt_finished", before.newest(), before.newest())
			}},
		{name: "rotate-keys", args: secrets("rotate-keys"), ready: enabled, first: enable, served: true, usual: 4 * time.Second, after: func(before, between, now keyState) error {
			next := before.newest() + 1
			if between.atRest() && between.active() == next { // it was killed after the last step, and another key is made
				next++
			}
			return now.keys("reencrypt_finished", next, next)
		}},
		{name: "disable", args: secrets("disable"), ready: enabled, first: enable, usual: 2 * time.Second, after: func(before, _, now keyState) error {
			return now.keys("reencrypt_finished", 0, before.newest())
		}},
		{name: "enable", args: secrets("enable"), ready: func(s keyState) bool { return !s.Enable && s.atRest() }, first: [][]string{secrets("disable")}, usual: 4 * time.Second,
			after: func(before, _, now keyState) error {
				return now.keys("reencrypt_finished", before.newest()+1, before.newest()+1)
			}},
		{name: "unseal", args: secrets("unseal"), ready: func(s keyState) bool { return s.Passphrase }, first: [][]string{secrets("seal")}, usual: 200 * time.Millisecond,
			after: func(before, _, now keyState) error {
				if now.Passphrase {
					return errors.New("the keys are sealed")
				}
				return now.keys(before.Stage, before.active(), before.newest())
			}},
		{name: "seal", args: secrets("seal"), ready: func(s keyState) bool { return !s.Passphrase && enabled(s) }, first: append(enable, secrets("unseal")), usual: 4 * time.Second,
			after: func(before, _, now keyState) error {
				if !now.Passphrase {
					return errors.New("the keys are not sealed")
				}
				return now.keys("reencrypt_finished", before.newest()+1, before.newest()+1)
			}},
		{name: "certificate-rotate", args: []string{"certificate", "rotate"}, served: true, local: true, usual: 800 * time.Millisecond, after: func(before, _, now keyState) error {
			for name, one := range before.Leaves {
				if now.Leaves[name].NotAfter == one.NotAfter || now.Leaves[name].Issuer != one.Issuer {
					return fmt.Errorf("the certificate %s was %v and is %v", name, one, now.Leaves[name])
				}
			}
			return nil
		}},
		{name: "rotate-ca", args: ca(), ready: func(s keyState) bool { return !changing(s) }, first: [][]string{ca("--finish", "--force")}, served: true, usual: 4 * time.Second,
			after: func(before, between, now keyState) error {
				if len(now.Authorities) != 2 || now.Authorities[1] != before.Authorities[0] || now.Authorities[0] == before.Authorities[0] {
					return fmt.Errorf("the authorities were %q and are %q", before.Authorities, now.Authorities)
				}
				if len(between.Authorities) == 2 && !slices.Contains(between.Authorities, now.Authorities[0]) {
					return fmt.Errorf("others were made again: %q, and then %q", between.Authorities, now.Authorities)
				}
				former := slices.Collect(maps.Values(before.Leaves))
				for name, one := range now.Leaves {
					if slices.ContainsFunc(former, func(l leaf) bool { return l.Issuer == one.Issuer }) {
						return fmt.Errorf("the former authority %s has signed %s", one.Issuer, name)
					}
				}
				return nil
			}},
		{name: "rotate-ca-finish", args: ca("--finish", "--force"), ready: changing, first: [][]string{ca()}, served: true, usual: 2 * time.Second, after: func(before, _, now keyState) error {
			if !slices.Equal(now.Authorities, before.Authorities[:1]) {
				return fmt.Errorf("the authorities were %q and are %q", before.Authorities, now.Authorities)
			}
			return nil
		}},
	}
}

// keys returns an error unless the stage, the number of the key that is written with, and that of the newest one, are as they should be.
func (s keyState) keys(stage string, active, newest int) error {
	if s.Stage != stage || s.active() != active || s.newest() != newest || s.Enable != (active > 0) {
		return fmt.Errorf("the stage is %q, key %d is written with, the newest is %d; they should be %q, %d, %d", s.Stage, s.active(), s.newest(), stage, active, newest)
	}
	return nil
}
