// Package upgrade upgrades installed coracles on whole machines, to a version that works and to one that does not.
package upgrade

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/upgrade/stage"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// TestUpgrade tests all outcomes of an upgrade on one server.
func TestUpgrade(t *testing.T) {
	slots.Take(t)
	site := machines.Open(t)
	s := stage.Install(t, site, "server", "server")
	s.Bring(t)
	s.Work(t)
	s.Keep(t)
	before := s.Containers()

	for _, c := range []struct {
		name string
		do   func(t *testing.T, s stage.Server)
	}{
		{"refused", refused},
		{"starts and fails", fails},
		{"misconfigured", misconfigured},
		{"hangs", hangs},
		{"dies after it was ready", dies},
		{"upgrader and machine die", plugPulled},
		{"works", works},
		{"older", func(t *testing.T, s stage.Server) { s.RefusesOlder(t, machines.Bin) }},
		{"and back", back},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			c.do(t, s.With(t))
			t.Logf("took %.1f s", time.Since(began).Seconds())
		})
		s.Kept(t)
		if c.name == "upgrader and machine die" {
			before = s.Containers() // pods ended with the machine
			continue
		}
		if after := s.Containers(); after != before {
			t.Fatalf("%s: containers were\n%s\nand are\n%s", c.name, before, after)
		}
	}
	s.Forget(t, "data", "newer") // the version before removes volumes of the newer one
	if got := strings.Fields(s.Sh("ls /var/lib/coracle/storage")); len(got) != 1 || !strings.HasSuffix(got[0], "_default_lost") {
		t.Errorf("what no volume is known of any more is not all that is left: %s", got)
	}
}

// refused are files that must be refused without a trial.
func refused(t *testing.T, s stage.Server) {
	s.Sh(`head -c 60000000 ` + stage.Newer + ` >/root/short; chmod 755 /root/short; echo '#!/bin/sh' >/root/script; chmod 755 /root/script
		cp /bin/true /root/other; printf '\267' | dd of=/root/arm bs=1 seek=18 conv=notrunc if=/dev/stdin 2>/dev/null || :
		cp ` + stage.Newer + ` /root/arm; printf '\267' | dd of=/root/arm bs=1 seek=18 conv=notrunc 2>/dev/null`)
	for file, want := range map[string]string{
		"/root/short": "not copied whole", "/root/script": "not an executable for Linux", "/root/other": "not a coracle",
		"/root/arm": "is for arm64", "/root/none": "no such file",
	} {
		out, err := s.Try("coracle", "upgrade", "--insecure-unsigned", file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %s", file, err, out)
		}
	}
	if s.Running() != s.Version {
		t.Errorf("%s runs", s.Running())
	}
}

// broken upgrades to the stand-in in one of its modes, which must be rolled back.
func broken(t *testing.T, s stage.Server, mode, want string, args ...string) {
	t.Helper()
	s.Write("/etc/standin", mode+"\n")
	s.Sh("rm -f /etc/standin-dies")
	missed := s.Ask(t, func() {
		_, err := s.Try("coracle", append([]string{"upgrade", "--insecure-unsigned", stage.Standin}, args...)...)
		if machines.Code(err) != 6 || !strings.Contains(err.Error(), want) {
			t.Errorf("exit code %d: %v", machines.Code(err), err)
		} else {
			t.Log(err)
		}
	})
	missed.Check(t)
	if phase, why := s.State(); phase != "rolled-back" {
		t.Errorf("%s: %s", phase, why)
	}
	s.Run("coracle", "wait", "--timeout=300s")
	if got := s.Running(); got != s.Version {
		t.Errorf("%s runs", got)
	}
}

func fails(t *testing.T, s stage.Server) { broken(t, s, "exits", "this version does not work") }
func misconfigured(t *testing.T, s stage.Server) {
	broken(t, s, "misconfigured", "7 is not a valid value")
}
func hangs(t *testing.T, s stage.Server) {
	broken(t, s, "hangs", "not ready within 3s", "--timeout=3s")
}

// dies writes an object while the new version is ready; it is lost with the trial, and kept aside. The folder of a
// volume that was created during the trial stays, and coracle status names it.
func dies(t *testing.T, s stage.Server) {
	s.Kubectl("create", "configmap", "before")
	go func() {
		for range 600 {
			if _, err := s.TrySh(`grep -q '"phase": "trial"' /var/lib/coracle/upgrade/state.json && ` + machines.Bin + ` kubectl create configmap during`); err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err := s.TryClaim("lost"); err != nil {
			t.Errorf("a volume during the trial: %v", err)
		}
		s.Run("touch", "/etc/standin-dies")
	}()
	broken(t, s, "dies "+stage.Newer, "", "--hold=180s")
	if got := s.Kubectl("get", "configmaps", "-o", "name"); strings.Contains(got, "during") || !strings.Contains(got, "before") {
		t.Errorf("after the rollback there are %s", got)
	}
	s.Sh(`test "$(ls -d /var/lib/coracle/upgrade/failed-* | wc -l)" = 1
		grep -qa configmaps/default/during /var/lib/coracle/upgrade/failed-*/etcd-member/wal/*.wal
		for n in $(seq 60); do ! coracle status | grep -qF "` + `$(ls -d /var/lib/coracle/storage/*_default_lost) belongs to a volume that the cluster does not know` + `" || exit 0; sleep 0.1; done
		coracle status && exit 1`)
}

// plugPulled kills the upgrader and its helpers, and then the machine.
func plugPulled(t *testing.T, s stage.Server) {
	s.Write("/etc/standin", "hangs\n")
	s.Sh(`coracle upgrade --insecure-unsigned --timeout=100s ` + stage.Standin + ` >/dev/null 2>&1 &`)
	s.AwaitPhase(t, "trial")
	s.Sh(`pkill -9 -f '[c]oracle upgrade'`)
	s.PullPlug()
	s.Run("coracle", "wait", "--timeout=300s")
	if phase, why := s.State(); phase != "rolled-back" || !strings.Contains(why, "machine was restarted") {
		t.Errorf("%s: %s", phase, why)
	}
	if got := s.Running(); got != s.Version {
		t.Errorf("%s runs", got)
	}
	s.Kubectl("get", "configmap", "before")
	s.AwaitPods(t)
}

// works upgrades while the upgrader is killed: the upgrade continues.
func works(t *testing.T, s stage.Server) {
	missed := s.Ask(t, func() {
		s.Run("coracle", "upgrade", "--insecure-unsigned", "--hold=3s", stage.Newer)
	})
	missed.Check(t)
	if got := s.Running(); got == s.Version {
		t.Errorf("%s runs", got)
	}
	if out := s.Run("coracle", "status"); !strings.Contains(out, "was done") {
		t.Errorf("status says nothing of the upgrade:\n%s", out)
	}
	s.Claim(t, "newer")
}

// back rolls back to the version before; the upgrader is killed at once.
func back(t *testing.T, s stage.Server) {
	s.Kubectl("create", "configmap", "after")
	missed := s.Ask(t, func() {
		s.Sh(`coracle rollback --hold=1s >/dev/null 2>&1 &`)
		s.AwaitPhase(t, "trial")
		s.Sh(`pkill -9 -f '[c]oracle (rollback|upgrade-watch)'`)
		s.AwaitPhase(t, "committed")
	})
	missed.Check(t)
	if got := s.Running(); got != s.Version {
		t.Errorf("%s runs", got)
	}
	s.Kubectl("get", "configmap", "after")
	if left, err := s.TrySh(`ls -d /usr/local/bin/.coracle.* /var/lib/coracle/upgrade/trial`); err == nil {
		t.Errorf("left: %s", left)
	}
}
