package upgrade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// Detach runs a command that outlives this process and its session: with systemd as a service of its own, which is restarted
// if it fails, otherwise in a session of its own.
func Detach(ctx context.Context, t Target, argv []string) error {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		args := []string{"--quiet", "--collect", "--no-ask-password",
			"--unit=" + t.Service + "-upgrade-" + strconv.FormatInt(time.Now().Unix(), 10),
			"--description=Upgrade of " + t.Service, "--property=Restart=on-failure", "--property=RestartSec=1", "--"}
		// An interrupt does not end this, because the caller has to know whether the watcher was started.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTimeout)
		defer cancel()
		if _, err := initsystem.Command(ctx, "systemd-run", append(args, argv...)...); err != nil {
			return fmt.Errorf("starting the watcher of the upgrade: %w", err)
		}
		return nil
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the watcher of the upgrade: %w", err)
	}
	return cmd.Process.Release()
}

// detachTimeout is the time in which systemd has to start a service.
const detachTimeout = 30 * time.Second
