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
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// machines are what an executable can be for, by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// inspect says what is wrong with a file without running it.
func inspect(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return exitcode.Usagef("%w", err)
	case !info.Mode().IsRegular():
		return exitcode.Usagef("%s is not a file", file)
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

// askTimeout is for a command of an executable that only prints.
const askTimeout = 15 * time.Second

// identify runs an executable to learn its version. name is what people call it.
func identify(ctx context.Context, path, name string) (Build, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := command(ctx, path, "version", "--output=json").Output()
	var told struct {
		Version string `json:"version"`
	}
	if err == nil && json.Unmarshal(out, &told) != nil {
		err = errors.New("it does not tell its version as coracle does")
	}
	if err == nil {
		_, err = parseVersion(told.Version)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it does not answer within %v", askTimeout)
	}
	if err != nil {
		return Build{}, exitcode.Usagef("%s is not a coracle that runs here: %w", name, said(err))
	}
	s, err := release.SumFile(path)
	return Build{told.Version, s}, err
}

// unpack has an executable unpack its payload, so that its start has not to. It finds out whether the file is whole.
func unpack(ctx context.Context, path, name, data string) error {
	if _, err := command(ctx, path, UnpackCommand, data).Output(); err != nil {
		return errors.New(strings.ReplaceAll(fmt.Sprintf("unpacking %s: %v", name, said(err)), path, name))
	}
	return nil
}

// command is one that gets nothing of what this process was told.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.WaitDelay = time.Second
	return cmd
}

// said adds what a command wrote to its error.
func said(err error) error {
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
