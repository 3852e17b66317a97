package config

import (
	"cmp"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// path returns an absolute path. A path in a file is relative to the file, others to the working directory.
func (d *decoder) path(v *value) string { return d.pathOr(v, "") }

// pathOr is path, with a default.
func (d *decoder) pathOr(v *value, other string) string {
	it := v.one()
	if it.text == "" {
		if other == "" || len(v.items) > 0 {
			d.add("%s: the path is empty", v.label())
		}
		v.derive(other)
		return other
	}
	path := it.text
	if file, _, ok := cutLast(it.origin.where, ":"); ok && it.origin.layer == fromFile && !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		d.add("%s: making %s absolute: %w", v.label(), path, err)
	}
	v.items[len(v.items)-1].text = abs
	return abs
}

// laterFile returns the absolute path of a file that may not be there yet, or "" if the setting is empty.
func (d *decoder) laterFile(v *value) string {
	if v.one().text == "" {
		return ""
	}
	return d.path(v)
}

// file returns the absolute path of a readable file, or "" if the setting is empty.
func (d *decoder) file(v *value) string {
	path := d.laterFile(v)
	if path == "" || v.layer == fromCluster { // package join writes it before it is used
		return path
	}
	f, err := os.Open(path)
	if err != nil {
		d.add("%s: %w", v.label(), err)
		return path
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		d.add("%s: %s is a directory, not a file", v.label(), path)
	}
	return path
}

// either checks that at most one of two settings is given.
func (d *decoder) either(a, b *value) {
	if a.one().text != "" && b.one().text != "" {
		d.add("%s and %s are both given; choose one", a.label(), b.label())
	}
}

func (d *decoder) toggle(v *value) bool {
	return isTrue(v.one().text)
}

// isTrue parses the text of a toggle, which was checked before.
func isTrue(text string) bool {
	on, _ := strconv.ParseBool(text)
	return on
}

// one returns a word, which must be one of the setting's words.
func (d *decoder) one(v *value) string {
	it := v.one()
	if words := v.setting.words; !slices.Contains(words, it.text) {
		d.add("%s: %q is none of %s", v.label(), it.text, strings.Join(words, ", "))
	}
	return it.text
}

// oneOf returns a sorted list without duplicates, whose items must be words of the setting.
func (d *decoder) oneOf(v *value) []string {
	for _, it := range v.items {
		if words := v.setting.words; !slices.Contains(words, it.text) {
			d.add("%s: %q is none of %s", it.label(v.setting), it.text, strings.Join(words, ", "))
		}
	}
	texts := v.texts()
	slices.Sort(texts)
	return slices.Compact(texts)
}

func (d *decoder) port(v *value) uint16 {
	it := v.one()
	n, err := strconv.ParseUint(it.text, 10, 16)
	if err != nil || n == 0 {
		d.add("%s: %q is not a port; it must be from 1 to 65535", v.label(), it.text)
	}
	return uint16(n)
}

// seconds returns a duration of whole seconds.
func (d *decoder) seconds(v *value) time.Duration {
	it := v.one()
	n, err := time.ParseDuration(it.text)
	if err != nil || n < 0 || n%time.Second != 0 || n > 7*24*time.Hour {
		d.add("%s: %q is not a time in whole seconds such as 30s or 5m, a week at most", v.label(), it.text)
	}
	return n
}

// The bounds of a certificate's life. Upstream's clients need a minute to notice that one was renewed; and a machine that is gone for good is forgotten
// when its certificate has ended, see endpoint.Claims.Tidy.
const (
	shortestLife = 3 * time.Minute
	longestLife  = 365 * 24 * time.Hour
)

func (d *decoder) life(v *value) time.Duration {
	it := v.one()
	n, err := time.ParseDuration(it.text)
	if err != nil || n < shortestLife || n%time.Second != 0 || n > longestLife {
		d.add("%s: %q is not a time from 3m to 8760h in whole seconds, such as 720h", v.label(), it.text)
	}
	return n
}

// portRange returns FIRST-LAST.
func (d *decoder) portRange(v *value) string {
	it := v.one()
	if _, _, ok := parsePortRange(it.text); !ok {
		d.add("%s: %q is not a range of ports such as 30000-32767", v.label(), it.text)
	}
	return it.text
}

func parsePortRange(s string) (first, last uint16, ok bool) {
	from, to, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	return uint16(a), uint16(b), ok && errA == nil && errB == nil && 0 < a && a <= b
}

func (d *decoder) mode(v *value) fs.FileMode {
	it := v.one()
	n, err := strconv.ParseUint(strings.TrimPrefix(it.text, "0o"), 8, 32)
	if err != nil || n > 0o777 {
		d.add("%s: %q is not an octal file mode such as 0600", v.label(), it.text)
	}
	return fs.FileMode(n) & fs.ModePerm
}

func (d *decoder) prefixes(v *value) []netip.Prefix {
	var out []netip.Prefix
	for _, it := range v.items {
		prefix, err := netip.ParsePrefix(it.text)
		switch {
		case err != nil:
			d.add("%s: %q is not a CIDR such as %s", it.label(v.setting), it.text, v.setting.def)
		case prefix.Addr().Is4In6():
			d.add("%s: write the IPv4 range %s in IPv4's form", it.label(v.setting), it.text)
		case unusable(prefix.Addr()) != "":
			d.add("%s: %s begins with %s; choose a private range such as %s", it.label(v.setting), it.text, unusable(prefix.Addr()), v.setting.def)
		case prefix != prefix.Masked():
			d.add("%s: %s has bits set beyond its length; the range is %s", it.label(v.setting), it.text, prefix.Masked())
		default:
			out = append(out, prefix)
		}
	}
	return out
}

func (d *decoder) addrs(v *value) []netip.Addr {
	var out []netip.Addr
	for _, it := range v.items {
		if addr, ok := d.addr(it, v.setting); ok {
			out = append(out, addr)
		}
	}
	return out
}

func (d *decoder) addr(it item, s setting) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(it.text)
	if err != nil || addr.Zone() != "" {
		d.add("%s: %q is not an IP address", it.label(s), it.text)
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// serverURL returns https://HOST:PORT; the text may lack scheme and port.
func (d *decoder) serverURL(v *value) string {
	it := v.one()
	if it.text == "" {
		d.add("%s: the address is empty; write it as in --server https://HOST:6443", v.label())
		return ""
	}
	text := it.text
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		d.add("%s: %q is not the address of a server such as https://HOST:6443", v.label(), it.text)
		return it.text
	}
	return "https://" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6443"))
}

// log returns the log levels. NAME=LEVEL is the level of a component, a lone level that of all others.
func (d *decoder) log(r raw) Log {
	out := Log{Level: "info", Format: d.one(r["log-format"])}
	for _, it := range r["log-level"].items {
		component, level, ok := strings.Cut(it.text, "=")
		if !ok {
			component, level = "", it.text
		}
		level = strings.ToLower(level)
		switch {
		case !slices.Contains(levels[:], level):
			d.add("%s: %q is no log level; it must be one of %s", it.label(r["log-level"].setting), level, strings.Join(levels[:], ", "))
		case !ok:
			out.Level = level
		case component == "":
			d.add("%s: %q names no component", it.label(r["log-level"].setting), it.text)
		default:
			if out.Levels == nil {
				out.Levels = map[string]string{}
			}
			out.Levels[component] = level
		}
	}
	if d.toggle(r["debug"]) && out.Level != "trace" {
		out.Level = "debug"
	}
	return out
}

var levels = [...]string{"error", "warn", "info", "debug", "trace"}

var argKey = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9-.]*$`)

// passThrough returns the KEY=VALUE pairs for an upstream component.
func (d *decoder) passThrough(v *value) []string {
	var out []string
	for _, it := range v.items {
		key, _, ok := strings.Cut(it.text, "=")
		switch {
		case strings.HasPrefix(it.text, "-"):
			d.add("%s: write %q without the dashes", it.label(v.setting), it.text)
		case !ok || !argKey.MatchString(key):
			d.add("%s: %q is not KEY=VALUE", it.label(v.setting), it.text)
		default:
			out = append(out, it.text)
		}
	}
	return out
}
