package initsystem

import (
	"fmt"
	"strings"
)

// openRCLog returns the file for a service's output: OpenRC has no journal.
func openRCLog(name string) string { return "/var/log/" + name + ".log" }

// openRCScript returns the text of an init script.
func openRCScript(u Unit) string {
	var b strings.Builder
	b.WriteString("#!/sbin/openrc-run\n# Made by coracle install, which replaces it. Put your own changes into /etc/conf.d/" + u.Name + ".\n\n")
	set := func(name, value string) { fmt.Fprintf(&b, "%s=%s\n", name, shellWord(value)) }
	set("name", u.Name)
	set("description", u.Description)
	command := u.Exec
	if u.Before != nil { // the supervisor starts again what has ended, without asking this script
		command = append([]string{"/bin/sh", "-c", ShellLine(u.Before) + ` || exit 1; exec "$0" "$@"`}, command...)
	}
	set("command", command[0])
	set("command_args", ShellLine(command[1:])) // OpenRC evaluates it once more
	log := openRCLog(u.Name)
	set("output_log", log)
	set("error_log", log)
	b.WriteString(scriptSettings)
	fmt.Fprintf(&b, `
start_pre() {
	# The log is kept from growing for ever at each start; coracle keeps the whole of it in its data directory.
	if [ "$(wc -c <%[1]s 2>/dev/null || echo 0)" -gt 1048576 ]; then mv -f %[1]s %[1]s.1; fi
	checkpath --file --mode 0600 %[1]s || return 1
`, shellWord(log))
	if u.Environment != "" {
		fmt.Fprintf(&b, "\tif [ -r %[1]s ]; then\n\t\tset -a\n\t\t. %[1]s\n\t\tset +a\n\tfi\n", shellWord(u.Environment))
	}
	b.WriteString("\treturn 0\n}\n")
	if u.Ready != nil {
		fmt.Fprintf(&b, `
extra_commands="ready usable"
description_ready="Wait until the service can be used"
description_usable="Tell whether the service can be used"

ready() {
	%[1]s --timeout=1h
}

usable() {
	%[1]s --timeout=0
}
`, ShellLine(u.Ready))
	}
	return b.String()
}

// scriptSettings are the settings of all of coracle's services. OpenRC's supervisor restarts a service that fails, and stops
// only its main process: pods run on.
const scriptSettings = `supervisor=supervise-daemon
respawn_delay=3
respawn_max=0
retry=TERM/90/KILL/5
rc_cgroup_cleanup=no

depend() {
	want cgroups
	use net dns logger
	after localmount bootmisc network-online firewall ntp-client
}
`
