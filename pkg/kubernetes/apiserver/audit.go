package apiserver

import (
	"cmp"
	_ "embed"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// auditPolicy is what the audit log holds unless the user gives a policy.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// auditFlags returns the flags of the audit log. It takes at most 100 MB with six former files, even if none of them can be compressed, and usually a
// quarter of that, because they are.
func (a APIServer) auditFlags() [][2]string {
	if !a.API.Audit {
		return nil
	}
	f := [][2]string{{"audit-policy-file", cmp.Or(a.API.AuditPolicy, a.Files.AuditPolicy)}, {"audit-log-path", a.AuditLog}}
	if a.API.AuditPolicy != "" { // the user chooses what is in it, and has space for it
		return append(f, [][2]string{{"audit-log-maxage", "30"}, {"audit-log-maxbackup", "5"}, {"audit-log-maxsize", "50"}}...)
	}
	return append(f, [][2]string{{"audit-log-compress", "true"}, {"audit-log-maxage", "90"}, {"audit-log-maxbackup", "6"}, {"audit-log-maxsize", "12"}}...)
}

// writeAuditPolicy writes coracle's policy.
func (a APIServer) writeAuditPolicy() error {
	return atomicfile.Write(a.Files.AuditPolicy, auditPolicy, 0o600)
}
