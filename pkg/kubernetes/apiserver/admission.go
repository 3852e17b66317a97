package apiserver

import (
	"io"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// addAdmission registers plugins after those of upstream, and makes them plugins that are on by default.
func addAdmission(o *genericoptions.AdmissionOptions, plugins []addon.Admission) {
	o.RecommendedPluginOrder = slices.Clone(o.RecommendedPluginOrder)
	for _, p := range plugins {
		o.Plugins.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.New(), nil })
		o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, p.Name)
	}
}
