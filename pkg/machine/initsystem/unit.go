package initsystem

import (
	"fmt"
	"strings"
)

// systemdUnit returns the text of a unit file.
func systemdUnit(u Unit) string {
	var b strings.Builder
	line := func(key, value string) { fmt.Fprintf(&b, "%s=%s\n", key, value) }
	b.WriteString("# Made by coracle install, which replaces it. Put your own changes into a drop-in in\n")
	fmt.Fprintf(&b, "# %s/%s.service.d (systemctl edit %s).\n[Unit]\n", unitDir, u.Name, u.Name)
	line("Description", strings.ReplaceAll(u.Description, "%", "%%"))
	line("Wants", "network-online.target")
	line("After", "network-online.target")
	for _, dir := range u.Mounts {
		line("RequiresMountsFor", systemdLine([]string{dir}))
	}
	b.WriteString("# Restart without limit.\n")
	line("StartLimitIntervalSec", "0")

	b.WriteString("\n[Service]\n")
	line("Type", "notify")
	line("NotifyAccess", "main")
	if u.Environment != "" {
		line("EnvironmentFile", "-"+strings.ReplaceAll(u.Environment, "%", "%%"))
	}
	if u.Before != nil {
		line("ExecStartPre", systemdLine(u.Before))
	}
	line("ExecStart", systemdLine(u.Exec))
	b.WriteString(serviceSettings)
	b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	return b.String()
}

// serviceSettings are the settings of all of coracle's services.
const serviceSettings = `# Only coracle itself is stopped with the service: pods run on and are taken over by the next start.
KillMode=process
Delegate=yes
Restart=always
RestartSec=3
# A mistake in the command line or the configuration, and a machine that was removed from its cluster: a restart cannot fix that.
RestartPreventExitStatus=2 8
# An agent waits for its server as long as it takes.
TimeoutStartSec=0
# With --drain-on-stop, pods end first.
TimeoutStopSec=90
TasksMax=infinity
LimitNOFILE=infinity
LimitNPROC=infinity
LimitCORE=infinity
OOMScoreAdjust=-998
`
