package observability

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slow serves the API slow.example.org/v1, whose lists last until the API server gives them up.
type Slow struct {
	// Asked and GivenUp are told of each list.
	Asked, GivenUp chan<- struct{}
}

// ServeHTTP answers the API server.
func (s Slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/apis/slow.example.org/v1/snails" {
		s.Asked <- struct{}{}
		<-r.Context().Done()
		s.GivenUp <- struct{}{}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: "slow.example.org/v1",
		APIResources: []metav1.APIResource{{Name: "snails", SingularName: "snail", Kind: "Snail", Verbs: metav1.Verbs{"list"}}},
	})
}
