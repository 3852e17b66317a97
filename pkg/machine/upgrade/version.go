package upgrade

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// number is a version in comparable form: of Kubernetes, and the number of coracle's release of it.
type number struct {
	major, minor, patch int
	count               int // -1 for a developer's build
}

var versionForm = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)(?:-[0-9A-Za-z.-]+)?\+coracle\.(\d+|dev)`)

func parseVersion(text string) (number, error) {
	m := versionForm.FindStringSubmatch(text)
	if m == nil {
		return number{}, fmt.Errorf("%q is not a version of coracle such as v1.37.1+coracle.1", text)
	}
	n := number{count: -1}
	for i, to := range []*int{&n.major, &n.minor, &n.patch, &n.count} {
		if m[i+1] == "dev" {
			break
		}
		v, err := strconv.Atoi(m[i+1])
		if err != nil {
			return number{}, fmt.Errorf("%q is not a version of coracle: %w", text, err)
		}
		*to = v
	}
	return n, nil
}

// older reports whether a is older than b. A developer's build is not older than others of the same Kubernetes version.
func older(a, b number) bool {
	for _, pair := range [][2]int{{a.major, b.major}, {a.minor, b.minor}, {a.patch, b.patch}} {
		if pair[0] != pair[1] {
			return pair[0] < pair[1]
		}
	}
	return a.count >= 0 && b.count >= 0 && a.count < b.count
}

// downgrade reports whether the trial is one of an older version.
func (s State) downgrade() bool {
	from, err := parseVersion(s.From.Version)
	to, too := parseVersion(s.To.Version)
	return err == nil && too == nil && older(to, from)
}

// Step returns why file must not replace the executable of a stopped service; nil if it may, or if the installed executable is
// damaged so that its version is unknown.
func Step(ctx context.Context, t Target, file string) error {
	from, err := identify(ctx, t.Binary, t.Binary)
	if err != nil {
		return nil
	}
	to, err := identify(ctx, file, file)
	if err != nil {
		return err
	}
	return allowed(from.Version, to.Version, t.Server, false)
}

// allowed returns why a change between versions is not allowed; nil if it is.
func allowed(from, to string, server, downgrade bool) error {
	a, err := parseVersion(from)
	if err != nil {
		return fmt.Errorf("the installed version: %w", err)
	}
	b, err := parseVersion(to)
	if err != nil {
		return fmt.Errorf("the new version: %w", err)
	}
	minor := func(n number) string { return fmt.Sprintf("%d.%d", n.major, n.minor) }
	switch {
	case older(b, a) && !downgrade:
		return exitcode.Usagef("%s is older than %s, which is installed: give --allow-downgrade to install it nevertheless, "+
			"or see coracle rollback", to, from)
	case server && (a.major != b.major || b.minor > a.minor+1):
		step := number{major: a.major, minor: a.minor + 1}
		return exitcode.Usagef("%s is Kubernetes %s, and %s runs here: a server must not skip a minor version; upgrade to %s first",
			to, minor(b), minor(a), minor(step))
	case server && b.minor < a.minor-1:
		return exitcode.Usagef("%s is Kubernetes %s, and %s runs here: that is too far back for the cluster's data", to, minor(b), minor(a))
	}
	return nil
}
