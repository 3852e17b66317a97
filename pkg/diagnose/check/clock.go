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
		return Skipf("the state of the clock cannot be read: %v", err)
	}
	service := ""
	for _, p := range m.processes() {
		if slices.ContainsFunc(timeServices, func(known string) bool { return strings.HasPrefix(p.Name, known) }) {
			service = p.Name
		}
	}
	return judgeClock(t.Status&unix.STA_UNSYNC == 0, service)
}

// firstRelease is before any release of coracle.
var firstRelease = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// judgeDate returns nil unless the time must be wrong: with such a clock coracle would make certificates that are not valid.
func judgeDate(now time.Time) []Verdict {
	if now.Before(firstRelease) {
		return Warnf("set the clock, otherwise certificates are not valid", "the date is %s, which is before the first release of coracle", now.Format(time.DateOnly))
	}
	return nil
}

// timeServices are programs that synchronise the clock, as far as the kernel keeps the name of a process: 15 bytes.
var timeServices = []string{"chronyd", "systemd-timesyn", "ntpd", "openntpd", "ptp4l", "phc2sys"}

func judgeClock(synchronised bool, service string) []Verdict {
	switch {
	case synchronised:
		return Okf("the clock is synchronised with a time server")
	case service != "":
		return Okf("%s runs, and has not synchronised the clock yet", service)
	}
	return Warnf("run chrony or systemd-timesyncd (timedatectl set-ntp true): certificates and leases need clocks that agree",
		"the clock is not synchronised: no time service runs")
}

func hostname(_ context.Context, m *Machine) []Verdict {
	name, err := os.Hostname()
	if err != nil {
		return Failf("set one: hostnamectl set-hostname NAME", "the machine has no name: %v", err)
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
		return Warnf("hostnamectl set-hostname NAME, or --node-name NAME", "the name of the node would be %q, which other machines have too", node)
	}
	text := "node " + node
	if node != name {
		text += ", on host " + name
	}
	if !known {
		text += "; the name is not in /etc/hosts, which coracle does not need"
	}
	return Okf("%s", text)
}
