package paths

import "path/filepath"

// AuditLog is kube-apiserver's audit log. Its former files are beside it.
func (d Dirs) AuditLog() string { return d.data("log", "audit", "audit.log") }

// AuditLogLink leads to AuditLog, where the log was before the control plane ran as a user of its own.
func (d Dirs) AuditLogLink() string { return d.data("log", "audit.log") }

// FormerOwnNodes is where OwnNodes was before the control plane ran as a user of its own.
func (d Dirs) FormerOwnNodes() string { return d.data("server", "own-nodes.json") }

// ControlPlane is a small file that the control plane writes. Its directory belongs to the control plane's user.
func (d Dirs) ControlPlane(name string) string { return d.data("server", "control-plane", name) }

// Joined marks that another server has joined; the front records it in ServerCluster.
func (d Dirs) Joined() string { return d.ControlPlane("joined") }

// Done marks that a request in a file of root's is done; the front then removes that file.
func (d Dirs) Done(request string) string { return d.ControlPlane(filepath.Base(request) + ".done") }

// ManifestsToRead is where the control plane reads them: the directory itself or its copy.
func (d Dirs) ManifestsToRead() string { return d.readable("manifests") }

// ChartsToRead is where the control plane reads them: the directory itself or its copy.
func (d Dirs) ChartsToRead() string { return d.readable("charts") }

// CopyOf is where the control plane reads a file that a setting names: the file itself or its copy. The original path is part of it, because
// it is in messages.
func (d Dirs) CopyOf(file string) string {
	if d.Copies == "" {
		return file
	}
	return filepath.Join(d.Copies, "files", file)
}

// ControlPlaneRun is a file of the control plane that a reboot removes. Its directory belongs to the control plane's user.
func (d Dirs) ControlPlaneRun(name string) string { return d.run("control-plane", name) }

// CopiesFor is where the front keeps the copies for the control plane; see Copies.
func (d Dirs) CopiesFor() string { return d.run("copies") }
