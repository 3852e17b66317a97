package doctor

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

func TestBackups(t *testing.T) {
	cfg := config.Config{Role: config.Server, Snapshots: config.Snapshots{Schedule: "0 */12 * * *"}}
	expect(t, judgeBackups(cfg, nil, now), check.OK, "the first one is made at 20")
	good := &backup.Attempt{Time: ago(time.Hour), File: "/a"}
	expect(t, judgeBackups(cfg, good, now), check.OK, "/a, of 20")
	expect(t, judgeBackups(cfg, &backup.Attempt{Time: ago(time.Hour), Error: "the bucket is full"}, now), check.Fail, "the bucket is full", "coracle etcd snapshot save")
	late := &backup.Attempt{Time: ago(30 * time.Hour), File: "/a"}
	expect(t, judgeBackups(cfg, late, now), check.Warn, "was due at 20")
	cfg.Snapshots.Off = true
	expect(t, judgeBackups(cfg, late, now), check.OK)
	expect(t, judgeBackups(cfg, nil, now), check.OK, "--etcd-disable-snapshots")
}
