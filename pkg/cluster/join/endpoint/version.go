package endpoint

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/version"
)

// The number of minor versions that a node, and another server, can be behind this server. They cannot be ahead. This is Kubernetes'
// version skew policy.
const (
	maxSkew       = 3
	maxServerSkew = 1
)

// checkVersion refuses a machine whose version violates the skew policy.
func checkVersion(joiner, server string, skew int) error {
	theirs, err := version.ParseGeneric(joiner)
	if err != nil {
		return refuse(http.StatusBadRequest, "%q is no version of coracle", joiner)
	}
	ours, err := version.ParseGeneric(server)
	if err != nil {
		return fmt.Errorf("reading the server's own version: %w", err)
	}
	behind := int(ours.Minor()) - int(theirs.Minor())
	switch {
	case theirs.Major() != ours.Major():
	case behind < 0:
		return refuse(http.StatusConflict, "this machine has coracle %s and the server %s: a node must not be newer than its servers; "+
			"upgrade the servers first, or join with coracle %s", joiner, server, server)
	case behind <= skew:
		return nil
	}
	return refuse(http.StatusConflict, "this machine has coracle %s and the server %s, which is too far apart (at most %d minor versions): "+
		"join with coracle %[2]s", joiner, server, skew)
}
