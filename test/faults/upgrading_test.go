package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// upgrade changes to the next version, or from that back to the one under test, as an upgrade too.
func (o *outage) upgrade() error {
	file := hosts.Next(o.t)
	if o.sum(o.host.Data("service", "coracle")) == o.sum(file) {
		file = hosts.Bin(o.t)
	}
	_, err := o.host.TryCoracle("upgrade", "--insecure-unsigned", "--allow-downgrade", "--timeout=40s", "--hold=1s", file)
	return err
}

// sum is a file's checksum, "" if it cannot be read.
func (o *outage) sum(file string) string {
	sum, _ := release.SumFile(file)
	return sum
}

// trial is the record of the last upgrade.
func (o *outage) trial() upgrade.State {
	o.t.Helper()
	s, _, err := upgrade.Read(o.host.Data())
	if err != nil {
		o.t.Error(err)
	}
	return s
}

// settled is nil if no upgrade is pending, and the version that runs is the one that the last upgrade has left.
func (o *outage) settled() error {
	s := o.trial()
	if s.Phase == "" {
		return nil
	}
	if s.Pending() {
		return errors.New(s.Text())
	}
	want := s.From
	if s.Phase == upgrade.Committed {
		want = s.To
	}
	if o.sum(o.host.Data("service", "coracle")) != want.SHA256 {
		return fmt.Errorf("%s, and another file is installed", s.Text())
	}
	var now struct{ Version string }
	out, err := o.host.TryCoracle("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &now); err != nil {
		return fmt.Errorf("status: %w: %s", err, out)
	}
	if now.Version != want.Version {
		return errors.Join(err, fmt.Errorf("%s, and %s runs", s.Text(), now.Version))
	}
	return nil
}

// upgrading upgrades on the failing disk.
func (o *outage) upgrading(seed uint64, random *rand.Rand, row *verdicts.Row) {
	o.t.Helper()
	before := o.trial()
	o.strain(seed, random, 900, o.upgrade, func() error { return errors.Join(o.settled(), o.healthy()) })
	row.Seen = "refused"
	if now := o.trial(); !now.Armed.Equal(before.Armed) {
		row.Seen = string(now.Phase)
	}
}

// undone leaves out what was written during a trial that was rolled back: its data is put back.
func (o *outage) undone(began time.Time, ops []op) []op {
	s := o.trial()
	if s.Phase != upgrade.RolledBack || s.Began.Before(began) {
		return ops
	}
	return slices.DeleteFunc(ops, func(p op) bool { return p.call >= s.Began.Sub(began) && p.call <= s.Ended.Sub(began) })
}

// tidy is an error for files that an interrupted step has left and the next start should have removed.
func (o *outage) tidy() (err error) {
	for _, pattern := range []string{"upgrade/trial", "data/.unpacking-*", "data/.damaged-*"} {
		found, _ := filepath.Glob(o.host.Data(pattern))
		for _, file := range found {
			if s := o.trial(); !s.Pending() {
				err = errors.Join(err, fmt.Errorf("left: %s", strings.TrimPrefix(file, o.host.Data())))
			}
		}
	}
	if entries, _ := os.ReadDir(o.host.Data("data")); len(entries) > 8 {
		err = errors.Join(err, fmt.Errorf("there are %d unpacked payloads", len(entries)))
	}
	return err
}
