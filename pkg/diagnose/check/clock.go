package check

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func clock(_ context.Context, m *Machine) []Verdict {
	if wrong := judgeDate(time.Now()); wrong != nil || m.starting {
		return wrong
	}
	var t unix.Timex // with no mode set it only reads
	if _, err := unix.Adjtimex(&t); err != nil {
		return Skipf("the kernel does not say whether the time is kept: %v", err)
	}
	keeper := ""
	for _, p := range m.processes() {
		if slices.ContainsFunc(timeKeepers, func(known string) bool { return strings.HasPrefix(p.Name, known) }) {
			keeper = p.Name
		}
	}
	return judgeClock(t.Status&unix.STA_UNSYNC == 0, keeper)
}

// firstRelease is before any release of coracle.
var firstRelease = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// judgeDate returns nil unless the time cannot be right: with such a clock coracle makes certificates that nobody accepts.
func judgeDate(now time.Time) []Verdict {
	if now.Before(firstRelease) {
		return Warnf("set it, or certificates will not be valid", "the clock says %s, which is before coracle was written", now.Format(time.DateOnly))
	}
	return nil
}

// timeKeepers are programs that keep the time, as far as the kernel keeps a process' name.
var timeKeepers = []string{"chronyd", "systemd-timesyn", "ntpd", "openntpd", "ptp4l", "phc2sys"}

func judgeClock(synchronised bool, keeper string) []Verdict {
	switch {
	case synchronised:
		return Okf("the time is kept by a time server")
	case keeper != "":
		return Okf("%s runs, and has not finished setting the time", keeper)
	}
	return Warnf("run chrony or systemd-timesyncd (timedatectl set-ntp true): certificates and leases need clocks that agree",
		"no program synchronises the time: no time server is in use")
}

func hostname(_ context.Context, m *Machine) []Verdict {
	name, err := os.Hostname()
	if err != nil {
		return Failf("give it one: hostnamectl set-hostname NAME", "the machine has no name: %v", err)
	}
	known := false
	m.fields("/etc/hosts", func(f []string) {
		for _, n := range f[1:] {
			known = known || strings.EqualFold(n, name)
		}
	})
	return judgeHostname(name, m.Config.Node.Name, known)
}

func judgeHostname(name, node string, known bool) []Verdict {
	switch first, _, _ := strings.Cut(node, "."); first {
	case "localhost", "":
		return Warnf("hostnamectl set-hostname NAME, or --node-name NAME", "the node would be called %q, as others are too", node)
	}
	text := "node " + node
	if node != name {
		text += ", on host " + name
	}
	if !known {
		text += "; the name is not in /etc/hosts, which nothing here needs"
	}
	return Okf("%s", text)
}
