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

// rules returns the cluster's nft table. It masquerades the nodes' traffic, because other machines have no route to them.
func rules(r Record, flags string) string {
	return fmt.Sprintf("table ip %s { %schain postrouting { type nat hook postrouting priority srcnat; ip saddr %s oifname != %q masquerade; }; }\n",
		r.table(), flags, r.Network, r.Link)
}

// masquerade makes the cluster's nft table. If the kernel does not support owners of tables, Down removes the table.
func masquerade(r Record) (pid int, err error) {
	if pid, err = startTableOwner(r); err == nil {
		return pid, nil
	}
	if _, plain := nft(r, rules(r, "")); plain != nil {
		return 0, err
	}
	return 0, nil
}

// startTableOwner makes the table through an nft process that owns it and runs as long as the holder. The kernel removes the table
// together with that process. A table with an owner also survives "nft flush ruleset". It returns the PID.
func startTableOwner(r Record) (pid int, err error) {
	cmd := exec.Command(tool(r, "nft"), "-i")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/dev/null"} // without it nft writes a history file
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
			go func() { // nft runs until this process ends, because in stays open
				_, _ = io.Copy(io.Discard, out)
				_ = cmd.Wait()
				release()
			}()
			return cmd.Process.Pid, nil
		}
	}
	return 0, fmt.Errorf("making nft table %s: nft ended", r.table())
}

// nft runs the nft command.
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

// missing reports whether nft failed because an object does not exist.
func missing(err error) bool { return err != nil && strings.Contains(err.Error(), "No such file") }

// removeTable removes the nft table of a cluster if the kernel has not: it may not support owners, or the owner is still ending.
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
	drops               bool // its policy is drop
}

// allowForwarding accepts the nodes' packets in the forward chains of this machine whose policy is drop, as Docker's is. The rules
// have the cluster's name as their comment.
func allowForwarding(r Record) error {
	out, err := nft(r, "list", "chains")
	if err != nil {
		return err
	}
	for _, c := range forwardChains(out) {
		if !c.drops {
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

// forwardChains parses a listing and returns the chains that filter forwarded IPv4 packets.
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
			c.drops = m[1] == "drop"
			chains = append(chains, c)
		}
	}
	return chains
}

// removeForwardRules removes the rules of allowForwarding.
func removeForwardRules(r Record) error {
	out, err := nft(r, "list", "chains")
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range forwardChains(out) {
		rules, err := nft(r, "-a", "list", "chain", c.family, c.table, c.name)
		errs = append(errs, err)
		for _, handle := range ruleHandles(rules, r.table()) {
			_, err := nft(r, "delete", "rule", c.family, c.table, c.name, "handle", handle)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ruleHandles returns the handles of the rules with a comment.
func ruleHandles(listing, comment string) (handles []string) {
	for line := range strings.Lines(listing) {
		rule, handle, ok := strings.Cut(strings.TrimSpace(line), " # handle ")
		if ok && strings.HasSuffix(rule, "comment "+quote(comment)) {
			handles = append(handles, handle)
		}
	}
	return handles
}
