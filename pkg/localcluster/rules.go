package localcluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// rules are those of the cluster's nft table: who answers the nodes must know this machine only.
func rules(r Record, flags string) string {
	return fmt.Sprintf("table ip %s { %schain postrouting { type nat hook postrouting priority srcnat; ip saddr %s oifname != %q masquerade; }; }\n",
		r.table(), flags, r.Network, r.Link)
}

// masquerade makes the cluster's nft table. Where the kernel knows no owners of tables Down removes it.
func masquerade(r Record) (pid int, err error) {
	if pid, err = startRules(r); err == nil {
		return pid, nil
	}
	if _, plain := nft(r, rules(r, "")); plain != nil {
		return 0, err
	}
	return 0, nil
}

// startRules makes the table. It belongs to an nft that runs as long as the keeper, and the kernel takes it away with
// that: a table with an owner also outlives a flush of all rules by this machine's firewall. It returns the process.
func startRules(r Record) (pid int, err error) {
	cmd := exec.Command(tool(r, "nft"), "-i")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/dev/null"} // else it leaves a history of what it was told
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	cmd.Stderr = cmd.Stdout
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		return 0, err
	}
	if _, err := io.WriteString(in, rules(r, "flags owner; ")+"list table ip "+r.table()+"\n"); err != nil {
		return 0, fmt.Errorf("making nft table %s: %w", r.table(), err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Error") {
			return 0, fmt.Errorf("making nft table %s: %s", r.table(), lines.Text())
		}
		if strings.Contains(lines.Text(), "masquerade") {
			go func() { // it ends with this process: in stays open
				_, _ = io.Copy(io.Discard, out)
				_ = cmd.Wait()
				release()
			}()
			return cmd.Process.Pid, nil
		}
	}
	return 0, fmt.Errorf("making nft table %s: nft ended", r.table())
}

// nft runs nft's command line.
func nft(r Record, args ...string) (string, error) {
	cmd := exec.Command(tool(r, "nft"), args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), err
}

// missing reports whether nft complained that something does not exist.
func missing(err error) bool { return err != nil && strings.Contains(err.Error(), "No such file") }

// removeTable removes the nft table of a cluster where the kernel has not: it may be one that knows no owners, or the
// owner is just about to end.
func removeTable(r Record) error {
	return nshost.Retry(func() error {
		_, err := nft(r, "delete", "table", "ip", r.table())
		if missing(err) {
			return nil
		}
		return err
	})
}

// chain is one of this machine's nft chains through which forwarded packets go.
type chain struct {
	family, table, name string
	closed              bool // it drops what no rule lets through
}

// passFirewall lets the nodes' packets through where this machine's firewall drops what it is not told to forward, as
// Docker makes it. Rules of ours carry the cluster's name as their comment.
func passFirewall(r Record) error {
	out, err := nft(r, "list", "chains")
	if err != nil {
		return err
	}
	for _, c := range forwardChains(out) {
		if !c.closed {
			continue
		}
		for _, direction := range []string{"iifname", "oifname"} {
			if _, err := nft(r, "insert", "rule", c.family, c.table, c.name, direction, r.Link, "accept", "comment", quote(r.table())); err != nil {
				return fmt.Errorf("letting the nodes' packets through this machine's firewall: %w", err)
			}
		}
	}
	return nil
}

func quote(text string) string { return `"` + text + `"` }

// Lines of nft list chains.
var (
	tableLine = regexp.MustCompile(`^table (\S+) (\S+) \{`)
	chainLine = regexp.MustCompile(`^\s+chain (\S+) \{`)
	hookLine  = regexp.MustCompile(`type filter hook forward .*policy (\w+)`)
)

// forwardChains are those of the chains that nft lists through which forwarded IPv4 packets go.
func forwardChains(listing string) (chains []chain) {
	var c chain
	for line := range strings.Lines(listing) {
		if m := tableLine.FindStringSubmatch(line); m != nil {
			c = chain{family: m[1], table: m[2]}
		}
		if m := chainLine.FindStringSubmatch(line); m != nil {
			c.name = m[1]
		}
		if m := hookLine.FindStringSubmatch(line); m != nil && (c.family == "ip" || c.family == "inet") {
			c.closed = m[1] == "drop"
			chains = append(chains, c)
		}
	}
	return chains
}

// leaveFirewall removes the cluster's rules from this machine's firewall.
func leaveFirewall(r Record) error {
	out, err := nft(r, "list", "chains")
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range forwardChains(out) {
		rules, err := nft(r, "-a", "list", "chain", c.family, c.table, c.name)
		errs = append(errs, err)
		for _, handle := range ownRules(rules, r.table()) {
			_, err := nft(r, "delete", "rule", c.family, c.table, c.name, "handle", handle)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ownRules are the handles of the rules that carry a comment.
func ownRules(listing, comment string) (handles []string) {
	for line := range strings.Lines(listing) {
		rule, handle, ok := strings.Cut(strings.TrimSpace(line), " # handle ")
		if ok && strings.HasSuffix(rule, "comment "+quote(comment)) {
			handles = append(handles, handle)
		}
	}
	return handles
}
