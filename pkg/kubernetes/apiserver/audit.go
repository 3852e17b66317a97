package apiserver

import (
	"cmp"
	_ "embed"
	"strings"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// auditPolicy is what the audit log holds unless the user gives a policy.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// auditFlags returns the flags of the audit log. It takes usually up to 200 MB: former files are compressed to less than a tenth, and only what
// cannot be compressed would fill 1.1 GB. These are the sizes of the CIS benchmark; clusters that began before them, and those in memory, have logs of 100 MB at most.
func (a APIServer) auditFlags() [][2]string {
	if !a.API.Audit {
		return nil
	}
	f := [][2]string{{"audit-policy-file", cmp.Or(a.API.AuditPolicy, a.Files.AuditPolicy)}, {"audit-log-path", a.AuditLog}}
	if a.Security.Strict() && !a.InMemory {
		return append(f, [][2]string{{"audit-log-compress", "true"}, {"audit-log-maxage", "90"}, {"audit-log-maxbackup", "10"}, {"audit-log-maxsize", "100"}}...)
	}
	if a.API.AuditPolicy != "" { // the user chooses what is in it, and has space for it
		return append(f, [][2]string{{"audit-log-maxage", "30"}, {"audit-log-maxbackup", "5"}, {"audit-log-maxsize", "50"}}...)
	}
	return append(f, [][2]string{{"audit-log-compress", "true"}, {"audit-log-maxage", "90"}, {"audit-log-maxbackup", "6"}, {"audit-log-maxsize", "12"}}...)
}

// writeAuditPolicy writes coracle's policy.
func (a APIServer) writeAuditPolicy() error {
	return atomicfile.Write(a.Files.AuditPolicy, auditPolicy, 0o600)
}

// Texts of a request's address in the audit log are cut to so many bytes, so that nobody can push everything else out of the log with a few requests.
const longestAuditText = 2048

// shortEvents hands events on with short texts.
type shortEvents struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (b shortEvents) ProcessEvents(events ...*auditinternal.Event) bool {
	for i, e := range events {
		size := len(e.RequestURI)
		for _, ip := range e.SourceIPs {
			size += len(ip)
		}
		if size <= longestAuditText {
			continue
		}
		short := *e // others use the event too
		short.RequestURI = cut(e.RequestURI)
		if len(e.SourceIPs) > 2 { // the last one is the connection's, the others are what the client says
			short.SourceIPs = []string{cut(e.SourceIPs[0]), e.SourceIPs[len(e.SourceIPs)-1]}
		}
		if e.ObjectRef != nil {
			ref := *e.ObjectRef
			ref.Name, ref.Namespace, ref.Resource, ref.Subresource = cut(ref.Name), cut(ref.Namespace), cut(ref.Resource), cut(ref.Subresource)
			short.ObjectRef = &ref
		}
		events[i] = &short
	}
	return b.Backend.ProcessEvents(events...)
}

func cut(text string) string {
	if len(text) <= longestAuditText {
		return text
	}
	return strings.ToValidUTF8(text[:longestAuditText], "") + "..."
}
