package coracletest

import (
	"flag"
	"path/filepath"
)

// artifactDir returns the directory for a test's artifacts with "go test -artifacts", "" without it.
func artifactDir(t TB) string {
	f := flag.Lookup("test.artifacts")
	keeper, ok := t.(interface{ ArtifactDir() string })
	if f == nil || f.Value.String() != "true" || !ok {
		return ""
	}
	return filepath.Join(keeper.ArtifactDir(), "cluster")
}
