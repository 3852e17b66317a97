package command

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/front"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// caller is the user that a command runs as.
type caller struct {
	credential *syscall.Credential // nil: the credential of this process
	user       *user.User          // nil if credential is
}

// caller returns the user who called coracle run, through sudo or not.
func (o runOptions) caller() (c caller, err error) {
	uid := os.Getenv("SUDO_UID")
	if o.asRoot || uid == "" || uid == "0" || os.Geteuid() != 0 {
		return c, nil
	}
	if c.user, err = user.LookupId(uid); err != nil {
		return c, fmt.Errorf("finding out who called sudo: %w; --root runs the command as root", err)
	}
	groups, err := c.user.GroupIds()
	if err != nil {
		return c, fmt.Errorf("finding out which groups %s is in: %w; --root runs the command as root", c.user.Username, err)
	}
	c.credential = &syscall.Credential{}
	for _, to := range []struct {
		text string
		id   *uint32
	}{{c.user.Uid, &c.credential.Uid}, {c.user.Gid, &c.credential.Gid}} {
		id, err := strconv.ParseUint(to.text, 10, 32)
		if err != nil {
			return c, fmt.Errorf("finding out who called sudo: %w", err)
		}
		*to.id = uint32(id)
	}
	for _, g := range groups {
		if id, err := strconv.ParseUint(g, 10, 32); err == nil {
			c.credential.Groups = append(c.credential.Groups, uint32(id))
		}
	}
	return c, nil
}

// owner returns the user and group that own the command's files.
func (c caller) owner() (uid, gid int) {
	if c.credential == nil {
		return os.Geteuid(), os.Getegid()
	}
	return int(c.credential.Uid), int(c.credential.Gid)
}

// artifacts describes a directory of files for the caller.
func (c caller) artifacts(dir string) localcluster.Artifacts {
	uid, gid := c.owner()
	return localcluster.Artifacts{Dir: dir, UID: uid, GID: gid}
}

// environ returns the command's environment. PATH is that of this process.
func (c caller) environ(h localcluster.CommandDir) []string {
	own := map[string]string{"KUBECONFIG": h.Kubeconfig(), "KUBECACHEDIR": h.Cache(), "CORACLE_CLUSTER": h.Cluster}
	if c.user != nil {
		own["HOME"], own["USER"], own["LOGNAME"] = c.user.HomeDir, c.user.Username, c.user.Username
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, ours := own[name]
		return ours
	})
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// extendPath appends a directory to PATH, for the command and for finding it.
func extendPath(dir string) error {
	path := os.Getenv("PATH")
	if path == "" {
		path = front.DefaultPath
	}
	return os.Setenv("PATH", strings.TrimRight(path, string(filepath.ListSeparator))+string(filepath.ListSeparator)+dir)
}
