package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// sameFile reports whether two paths are the same file or have the same content.
func (in *Installer) sameFile(file, installed string) (bool, error) {
	a, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	b, err := os.Stat(in.at(installed))
	if err != nil {
		return false, err
	}
	if os.SameFile(a, b) {
		return true, nil
	}
	if a.Size() != b.Size() {
		return false, nil
	}
	one, err := release.SumFile(file)
	if err != nil {
		return false, err
	}
	other, err := release.SumFile(in.at(installed))
	return one == other, err
}

// selinux exists if the kernel has SELinux and a policy is loaded.
const selinux = "/sys/fs/selinux/enforce"

// label gives the executable the SELinux label that the program of a service needs.
func (i *installation) label(path string) error {
	if !paths.Exists(i.at(selinux)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, command := range [][]string{{"restorecon", path}, {"chcon", "-t", "bin_t", path}} {
		if i.find(command[0]) == "" {
			continue
		}
		_, err := initsystem.Command(ctx, command[0], command[1:]...)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	i.Say(fmt.Sprintf("SELinux is on and %s could not be labelled: if the service may not run it, do: chcon -t bin_t %[1]s", path))
	if len(errs) > 0 {
		i.Say(errors.Join(errs...).Error())
	}
	return nil
}
