package stage

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/machines"
)

// RefusesOlder fails the test unless the server refuses an older executable in all ways in which it may come, and all stays as it is.
func (s Server) RefusesOlder(t testing.TB, older string) {
	t.Helper()
	version := s.Running()
	is := func() string {
		return s.Sh(`sha256sum /usr/local/bin/coracle
			cd /var/lib/coracle
			ls -A /usr/local/bin data
			find upgrade -type f ! -name '*lock' -exec sha256sum {} + || : # there is none before the first upgrade
			cat server/version`)
	}
	refuses := func(while string) {
		t.Helper()
		before := is()
		for _, command := range [][]string{{"coracle", "upgrade", "--insecure-unsigned", older}, {older, "install", "--", "server"}} {
			_, err := s.Try(command[0], command[1:]...)
			if machines.Code(err) != 2 || !strings.Contains(err.Error(), "is older than "+version) {
				t.Errorf("%s while coracle %s: exit code %d: %v", command, while, machines.Code(err), err)
			}
		}
		if after := is(); after != before {
			t.Errorf("while coracle %s there was\n%s\nand after older versions were refused there is\n%s", while, before, after)
		}
	}
	refuses("runs")
	s.Run("systemctl", "stop", "coracle")
	refuses("is stopped")
	const data = `cd /var/lib/coracle/server && tar -c --exclude ./version . | sha256sum`
	before := s.Sh(data)
	s.Sh(`echo v1.99.0+coracle.1 >/var/lib/coracle/server/version`)
	if _, err := s.Try("systemctl", "start", "coracle"); err == nil {
		t.Error("it starts with the data of a newer minor version")
	}
	if got := s.Run("journalctl", "--no-pager", "--lines=20", "--unit=coracle"); !strings.Contains(got, "may not understand what Kubernetes 1.99 has written") {
		t.Errorf("the log does not say that the data is of a newer version:\n%s", got)
	}
	if after := s.Sh(data); after != before {
		t.Error("a start that was refused has changed the data")
	}
	s.Sh(`echo '` + version + `' >/var/lib/coracle/server/version
		systemctl start coracle
		coracle wait --timeout=300s`)
	if got := s.Running(); got != version {
		t.Errorf("%s runs, and %s was installed", got, version)
	}
}
