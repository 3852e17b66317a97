// Package admission is an example of admission webhooks and policies.
package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admission "k8s.io/api/admission/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhooks serves the webhooks of webhooks.yaml.
func webhooks() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /seen", review(seen("seen")))
	mux.Handle("POST /seen-once", review(seen("seen-once")))
	mux.Handle("POST /sidecar", review(sidecar))
	mux.Handle("POST /names", review(names))
	return mux
}

// patch is an operation of a JSON patch.
type patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// review answers an AdmissionReview with the changes that decide wants, or with its error.
func review(decide func(*admission.AdmissionRequest) ([]patch, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body admission.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&body); err != nil || body.Request == nil {
			http.Error(w, "the body is no AdmissionReview", http.StatusBadRequest)
			return
		}
		answer := &admission.AdmissionResponse{UID: body.Request.UID, Allowed: true}
		patches, err := decide(body.Request)
		if err != nil {
			answer.Allowed, answer.Result = false, &meta.Status{Message: err.Error()}
		} else if len(patches) > 0 {
			kind := admission.PatchTypeJSONPatch
			answer.PatchType = &kind
			answer.Patch, _ = json.Marshal(patches)
		}
		body.Response = answer
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	})
}

// sidecar adds a container that starts before the others and serves as long as the pod lives.
func sidecar(r *admission.AdmissionRequest) ([]patch, error) {
	var pod core.Pod
	if err := json.Unmarshal(r.Object.Raw, &pod); err != nil {
		return nil, err
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == "sidecar" {
			return nil, nil // a webhook can be called twice for a pod
		}
	}
	always := core.ContainerRestartPolicyAlways
	proxy := core.Container{
		Name: "sidecar", Image: "coracle.test/busybox:1", RestartPolicy: &always,
		Command: []string{"sh", "-c", `mkdir /www && echo "the sidecar of $HOSTNAME" >/www/index.html && exec httpd -f -p 15001 -h /www`},
	}
	return []patch{{"add", "/spec/initContainers", append([]core.Container{proxy}, pod.Spec.InitContainers...)}}, nil
}

// seen writes into an annotation how many containers the pod has at that moment, sidecars included.
func seen(annotation string) func(*admission.AdmissionRequest) ([]patch, error) {
	return func(r *admission.AdmissionRequest) ([]patch, error) {
		var pod core.Pod
		if err := json.Unmarshal(r.Object.Raw, &pod); err != nil {
			return nil, err
		}
		all := map[string]string{annotation: fmt.Sprint(len(pod.Spec.InitContainers) + len(pod.Spec.Containers))}
		for key, value := range pod.Annotations {
			if key != annotation {
				all[key] = value
			}
		}
		return []patch{{"add", "/metadata/annotations", all}}, nil
	}
}

// names refuses names that do not say whose an object is.
func names(r *admission.AdmissionRequest) ([]patch, error) {
	if !strings.HasPrefix(r.Name, "team-") {
		return nil, fmt.Errorf("the name %s must begin with team-", r.Name)
	}
	return nil, nil
}
