package hosts

import (
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/test/executable"
)

// serviceDir is where the executable of a service is: on the host's disk, so that what happens to the disk happens to an upgrade too.
const serviceDir = "/var/lib/coracle/service"

// The programs of an init system for a host: as much of OpenRC as coracle uses. rcLoop starts what the service's script says whenever it
// has ended, and rcService restarts it and reports on it.
const (
	rcLoop = `: >/run/openrc/softlevel; : >/run/openrc/started
checkpath() { :; }
while [ -e /run/openrc/started ]; do
	. /etc/init.d/coracle && start_pre
	eval "$command $command_args &"
	echo $! >/run/openrc/pid
	wait $!
	code=$?
	rm /run/openrc/again 2>/dev/null || [ ! -e /run/openrc/started ] || sleep 1
done
exit $code`

	rcService = `#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
. "/etc/init.d/$1"
case $2 in
start) ;;
status) [ -e /run/openrc/started ] || exit 3 ;;
restart)
	was=$(cat /run/openrc/pid)
	: >/run/openrc/again
	kill -TERM "$was" 2>/dev/null
	while [ "$(cat /run/openrc/pid)" = "$was" ]; do sleep 0.1; done ;;
*) "$2" ;;
esac
`
)

// ServiceBin is coracle's executable on a host of a Plan with Service.
func (h *Host) ServiceBin() string { return filepath.Join(serviceDir, "coracle") }

// install makes coracle a service of a host, unless it is one.
func (h *Host) install(role string, args []string) {
	h.t.Helper()
	h.must(os.MkdirAll(h.Path("/run/openrc"), 0o755)) // it is gone after each boot
	for _, name := range []string{"openrc-run", "rc-service"} {
		h.must(executable.Write(h.Path("/usr/local/bin/"+name), []byte(rcService)))
	}
	if !paths.Exists(h.Data("service", "coracle")) {
		h.Run(Bin(h.t), append([]string{"install", "--bin-dir", serviceDir, "--skip-start", "--skip-enable", "--", role}, args...)...)
	}
}

// startService is start for coracle as a service, which is started again whenever it ends.
func (h *Host) startService(role string, args ...string) *Server {
	h.t.Helper()
	h.install(role, args)
	s := h.run(role, "sh", "-c", rcLoop)
	s.service = true
	return s
}
