package clusterdns

import (
	"fmt"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// ReportKey is the name of the report in state.Process.Details.
const ReportKey = "dns"

// Status is what coracle reports of a node's name server.
type Status struct {
	Listen    []string  `json:"listen"`
	Upstreams []string  `json:"upstreams,omitempty"` // what /etc/resolv.conf stands for in the Corefile
	Source    string    `json:"source"`              // of the Corefile in use: cluster, cache or default
	Loaded    time.Time `json:"loaded,omitzero"`
	PID       int       `json:"pid,omitempty"` // of its process
	// Unconfined says which privileges that process could not give up, "" if none.
	Unconfined string `json:"unconfined,omitempty"`
	// Error says what is wrong with the cluster's Corefile, with its line; the previous one is in use.
	Error string `json:"error,omitempty"`
}

// Report describes the report. Its probe is in package doctor, because it sends queries.
func Report() state.Report {
	return state.NewReport(ReportKey, state.EachNode, "DNS", lines, nil)
}

func lines(s Status) []string {
	if len(s.Listen) == 0 {
		return nil
	}
	out := []string{"on " + strings.Join(s.Listen, ", ")}
	if len(s.Upstreams) > 0 {
		out[0] += ", other names are asked of " + strings.Join(s.Upstreams, ", ")
	}
	switch {
	case s.PID == 0: // of an older version
	case s.Unconfined == "":
		out = append(out, fmt.Sprintf("process %d runs as user %d, without capabilities, and sees no file outside its directory", s.PID, UserID))
	default:
		out = append(out, fmt.Sprintf("process %d has more privileges than it needs: %s", s.PID, strings.ReplaceAll(s.Unconfined, "\n", "; ")))
	}
	if s.Error != "" {
		out = append(out, fmt.Sprintf("still by the Corefile of %s: ConfigMap kube-system/coredns: %s", s.Loaded.Format(time.TimeOnly), s.Error))
	}
	return out
}
