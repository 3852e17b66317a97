package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

func printMembers(w io.Writer, members []members.MemberStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tID\tROLE\tANSWERS\tADDRESS")
	for _, m := range members {
		role := "voter"
		switch {
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		answers := "yes"
		if !m.Answers {
			answers = "no"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.ID, role, answers, strings.Join(m.PeerURLs, ","))
	}
	t.Flush()
}

func printEtcdStatus(w io.Writer, s members.Status) {
	printMembers(w, s.Members)
	fmt.Fprintf(w, "\netcd %s, term %d, entry %d\n", s.Version, s.Term, s.Index)
	fmt.Fprintf(w, "database of this server: %s, of which %s in use, limit %s\n", size(s.Size), size(s.InUse), size(s.Quota))
	if !s.Quorum {
		fmt.Fprintln(w, "The members do not agree: more than half of them must run. If they are lost for good, see coracle cluster reset-quorum.")
	}
	for _, a := range s.Alarms {
		fmt.Fprintf(w, "ALARM %s of %s: see docs/high-availability.md\n", a.Kind, a.Member)
	}
}

// size formats a number of bytes: 12.3 MiB.
func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
