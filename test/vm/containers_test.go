package vm

import (
	"strings"
	"testing"
	"time"
)

// containerSteps are tried on a machine where coracle runs in a container of another engine, with --privileged.
func containerSteps() []step {
	return []step{
		{"boot", (*story).boot, false},
		{"run --privileged", (*story).runContainer, false},
		{"app", (*story).app, false},
		{"network", (*story).network, false},
		{between, (*story).between, false},
		{"volume, logs, exec, top", (*story).tools, false},
		{"memory limit", (*story).memory, false},
		{"restart of the container", (*story).restartContainer, true},
	}
}

// runContainer runs the image. Commands on the machine are then those in the container.
func (s *story) runContainer(t *testing.T) {
	s.m.Sh(`mkdir -p /opt/bin
for name in coracle kubectl crictl; do
	printf '#!/bin/sh\nexec %s exec -i coracle %s "$@"\n' "$1" "$name" >/opt/bin/$name
	chmod 755 /opt/bin/$name
done
$1 load --quiet --input "$2"/coracle-image.tar`, s.engine, Bin[:len(Bin)-len("/coracle")])
	began := time.Now()
	s.m.Sh(`$1 run --detach --name coracle --hostname coracle --privileged --volume coracle:/var/lib/coracle --volume /mnt/images:/mnt/images:ro --publish 30090:30090 --publish 30091:30091 --publish 8091:8091 $($1 images --quiet | head -n 1) server`, s.engine)
	s.ready(t)
	s.report.Version = s.m.Sh(commit)
	s.facts["install to Ready"] = time.Since(began).Round(time.Second).String()
	s.facts["engine"] = s.m.Run(s.engine, "--version")
	// Docker's daemon loads br_netfilter; podman does not, and the container cannot. The machine's user does what coracle says.
	if s.m.Sh(`test -e /proc/sys/net/bridge || echo missing`) == "missing" {
		const advice = "modprobe br_netfilter"
		if log := s.m.Sh("$1 logs coracle 2>&1", s.engine); !strings.Contains(log, advice) {
			t.Errorf("no word of br_netfilter:\n%s", log)
		}
		s.m.Sh(advice)
	}
}

// restartContainer ends the pods too, since they are in the container.
func (s *story) restartContainer(t *testing.T) {
	s.m.Run(s.engine, "restart", "--time", "60", "coracle")
	s.ready(t)
	s.well(t, 2)
}
