// Package scheduling is the example of docs/extending/scheduling.md: where pods land, and which are not evicted.
package scheduling

import (
	"encoding/json"
	"net/http"

	extender "k8s.io/kube-scheduler/extender/v1"
)

// Extender is a scheduler extender that knows which nodes have a licence.
type Extender struct{ Licensed map[string]bool }

// ServeHTTP answers the verb filter: the nodes that the pod may use, and why not the others.
func (e Extender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var args extender.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.NodeNames == nil {
		http.Error(w, "the body is no ExtenderArgs with names of nodes", http.StatusBadRequest)
		return
	}
	may, failed := []string{}, extender.FailedNodesMap{}
	for _, name := range *args.NodeNames {
		if e.Licensed[name] {
			may = append(may, name)
		} else {
			failed[name] = "the node has no licence"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(extender.ExtenderFilterResult{NodeNames: &may, FailedNodes: failed})
}
