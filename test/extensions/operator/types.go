// Package operator is an example of a custom resource in two versions, and of its operator.
package operator

import (
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "web.example.org"

// Website is version v1, to which and from which others are converted.
type Website struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            Spec   `json:"spec"`
	Status          Status `json:"status,omitempty"`
}

// Spec is what is wanted.
type Spec struct {
	Replicas int32   `json:"replicas,omitempty"`
	Tier     string  `json:"tier,omitempty"`
	Content  Content `json:"content"`
}

// Content is what the site shows.
type Content struct {
	HTML string `json:"html"`
}

// Status is what there is, the same in both versions.
type Status struct {
	Replicas int32  `json:"replicas"`
	Ready    int32  `json:"ready"`
	Selector string `json:"selector,omitempty"`
}

// OldWebsite is version v1alpha1: it has no tier, and the content is a text.
type OldWebsite struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            OldSpec `json:"spec"`
	Status          Status  `json:"status,omitempty"`
}

// OldSpec is what is wanted, in version v1alpha1.
type OldSpec struct {
	Replicas int32  `json:"replicas,omitempty"`
	Page     string `json:"page"`
}

// tierKey is the annotation that keeps for v1alpha1 what only v1 has, so that nothing is lost on the way there and back.
const tierKey = group + "/tier"

// ConvertTo makes v1 out of v1alpha1.
func (w *OldWebsite) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Website)
	w.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	to.Spec = Spec{Replicas: w.Spec.Replicas, Tier: "basic", Content: Content{HTML: w.Spec.Page}}
	if tier := to.Annotations[tierKey]; tier != "" {
		to.Spec.Tier = tier
		delete(to.Annotations, tierKey)
	}
	to.Status = w.Status
	return nil
}

// ConvertFrom makes v1alpha1 out of v1.
func (w *OldWebsite) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Website)
	from.ObjectMeta.DeepCopyInto(&w.ObjectMeta)
	if from.Spec.Tier != "" && from.Spec.Tier != "basic" {
		meta.SetMetaDataAnnotation(&w.ObjectMeta, tierKey, from.Spec.Tier)
	}
	w.Spec = OldSpec{Replicas: from.Spec.Replicas, Page: from.Spec.Content.HTML}
	w.Status = from.Status
	return nil
}

// Hub marks v1 as the version between others.
func (w *Website) Hub() {}

// DeepCopyObject returns a copy.
func (w *Website) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject returns a copy.
func (w *OldWebsite) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// list is a list of sites of one version.
type list[T any] struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []T `json:"items"`
}

// DeepCopyObject returns a copy.
func (l *list[T]) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]T, len(l.Items))
	for i := range l.Items {
		from, to := any(&l.Items[i]).(runtime.Object), &out.Items[i]
		*to = *any(from.DeepCopyObject()).(*T)
	}
	return &out
}

// site is a website of either version.
type site interface {
	client.Object
	wanted() (replicas int32, html string)
	status() *Status
}

func (w *Website) wanted() (int32, string)    { return w.Spec.Replicas, w.Spec.Content.HTML }
func (w *Website) status() *Status            { return &w.Status }
func (w *OldWebsite) wanted() (int32, string) { return w.Spec.Replicas, w.Spec.Page }
func (w *OldWebsite) status() *Status         { return &w.Status }

// register tells a scheme of both versions.
func register(scheme *runtime.Scheme) {
	for version, types := range map[string][]runtime.Object{
		"v1":       {&Website{}, &list[Website]{}},
		"v1alpha1": {&OldWebsite{}, &list[OldWebsite]{}},
	} {
		gv := schema.GroupVersion{Group: group, Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind("Website"), types[0])
		scheme.AddKnownTypeWithName(gv.WithKind("WebsiteList"), types[1])
		meta.AddToGroupVersion(scheme, gv)
	}
}
