// Package version has the versions of this build. The build sets the variables with -ldflags -X; a plain `go build`
// leaves the defaults.
package version

// Version is coracle's version in Kubernetes' form, v1.37.1+coracle.N. Commit is the git commit it was built from.
var (
	Version = "v1.37.1+coracle.dev"
	Commit  = "unknown"
)

// PauseImage is the reference under which the payload's pause image is imported. It holds every pod's namespaces.
// The build names the image after it.
const PauseImage = "coracle.io/pause:3.10.2"
