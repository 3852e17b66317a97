package host

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// setSysctls makes the settings. Those that the kernel lacks or that a container may not change are skipped, unless they are
// required.
func setSysctls(l *ledger.Ledger, ipv6 bool) error {
	for _, s := range footprint.Sysctls() {
		have := read(ledger.SysctlFile(s.Name))
		if s.IPv6 && !ipv6 || satisfied(s, have) {
			continue
		}
		err := l.SetSysctl(s.Name, s.Value)
		switch {
		case err == nil:
			logrus.WithField("component", "host").Debugf("set sysctl %s from %s to %s", s.Name, have, s.Value)
		case s.Required:
			return fmt.Errorf("pods need sysctl %s=%s and it cannot be set; set it on the host: %w", s.Name, s.Value, err)
		case !errors.Is(err, fs.ErrNotExist):
			logrus.WithField("component", "host").WithError(err).Debugf("sysctl %s stays %s", s.Name, have)
		}
	}
	return nil
}

// satisfied reports whether the kernel's value need not be changed.
func satisfied(s footprint.Sysctl, have string) bool {
	if !s.AtLeast {
		return have == s.Value
	}
	h, errHave := strconv.ParseInt(have, 10, 64)
	want, errWant := strconv.ParseInt(s.Value, 10, 64)
	return errHave == nil && errWant == nil && h >= want
}
