package upgrade

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// machines are the architectures of executables by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// inspect checks that a file is an executable for this machine, without running it.
func inspect(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return exitcode.Usagef("%w", err)
	case !info.Mode().IsRegular():
		return exitcode.Usagef("%s is not a regular file", file)
	}
	if !isELF(file) {
		return exitcode.Usagef("%s is not an executable for Linux", file)
	}
	f, err := elf.Open(file)
	if err != nil {
		return exitcode.Usagef("%s is not an executable, or was not copied whole: %w", file, err)
	}
	defer f.Close()
	if f.Machine == machines[runtime.GOARCH] {
		return nil
	}
	arch := strings.TrimPrefix(f.Machine.String(), "EM_")
	for name, machine := range machines {
		if machine == f.Machine {
			arch = name
		}
	}
	return exitcode.Usagef("%s is for %s, and this machine is %s: get the file for %[3]s", file, arch, runtime.GOARCH)
}

func isELF(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, len(elf.ELFMAG))
	_, err = io.ReadFull(f, begin)
	return err == nil && string(begin) == elf.ELFMAG
}

// askTimeout is the time limit of a command that only prints.
const askTimeout = 15 * time.Second

// identify runs an executable to get its version. Errors call it name.
func identify(ctx context.Context, path, name string) (Build, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := command(ctx, path, "version", "--output=json").Output()
	// A child that another goroutine has just forked may have the new file open for writing until it executes its program.
	for errors.Is(err, syscall.ETXTBSY) && lifecycle.Sleep(ctx, 10*time.Millisecond) == nil {
		out, err = command(ctx, path, "version", "--output=json").Output()
	}
	var printed struct {
		Version string `json:"version"`
	}
	if err == nil && json.Unmarshal(out, &printed) != nil {
		err = errors.New("it does not print a version as coracle does")
	}
	if err == nil {
		_, err = parseVersion(printed.Version)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it does not answer within %v", askTimeout)
	}
	if err != nil {
		return Build{}, exitcode.Usagef("%s is not a coracle that runs here: %w", name, withStderr(err))
	}
	s, err := release.SumFile(path)
	return Build{printed.Version, s}, err
}

// unpack runs an executable to unpack its payload before its first start. It fails if the file is incomplete.
func unpack(ctx context.Context, path, name, data string) error {
	if _, err := command(ctx, path, UnpackCommand, data).Output(); err != nil {
		return errors.New(strings.ReplaceAll(fmt.Sprintf("unpacking %s: %v", name, withStderr(err)), path, name))
	}
	return nil
}

// command returns a command without the environment of this process, except PATH and HOME.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.WaitDelay = time.Second
	return cmd
}

// withStderr replaces the error of a command by what it wrote to stderr.
func withStderr(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	text := strings.TrimSpace(strings.ReplaceAll("\n"+string(exit.Stderr), "\ncoracle: ", "\n"))
	if text == "" {
		return err
	}
	const enough = 2000
	return errors.New(text[:min(len(text), enough)])
}
