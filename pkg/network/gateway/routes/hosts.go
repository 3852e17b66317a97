package routes

import (
	"net/netip"
	"strings"
)

// index has something for each host, by key.
type index[T any] map[string]T

// find returns what the most specific host has, and its key; "" also if there is none.
func (x index[T]) find(host string) (at string, of T) {
	for name, more := host, true; more; name, more = lessSpecific(name), name != "" {
		if of, ok := x[name]; ok {
			return name, of
		}
	}
	return "", of
}

// owner returns what has a host itself, or a wildcard in place of its first label; zero if nothing has.
func (x index[T]) owner(host string) (of T) {
	if of, ok := x[host]; ok {
		return of
	}
	return x[lessSpecific(host)]
}

// key returns under what an index has a host: a wildcard is without its star, so that it is a part of the names below it.
func key(host string) string { return strings.ToLower(strings.TrimPrefix(host, "*")) }

// lessSpecific returns the key of the next wildcard above a name or wildcard, or "", which is for all hosts.
func lessSpecific(name string) string {
	if len(name) > 1 {
		if dot := strings.IndexByte(name[1:], '.'); dot >= 0 && !isAddress(name) {
			return name[1+dot:]
		}
	}
	return ""
}

// maxHost is the longest name in DNS in bytes. It bounds what a long one costs.
const maxHost = 253

// canonical returns a host as keys have it. What can be no name belongs to all hosts.
func canonical(host string) string {
	host = strings.TrimSuffix(host, ".")
	if len(host) > maxHost || strings.HasPrefix(host, ".") || strings.HasPrefix(host, "*") {
		return ""
	}
	return strings.ToLower(host)
}

func isAddress(name string) bool {
	if last := name[len(name)-1]; last < '0' || last > '9' { // as no top-level domain ends; one in IPv6 has no dot, or is in brackets
		return false
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}
