package translate

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The controllers of classes that are served if their names are among the OtherClasses.
const (
	controllerNginx   = "k8s.io/ingress-nginx"
	controllerTraefik = "traefik.io/ingress-controller"
)

// Foreign reports whether a class is one of another controller, which may run still and write the status of its Ingresses.
func Foreign(c *networkingv1.IngressClass) bool { return c.Spec.Controller != Controller }

// Served returns the names of the classes that the gateway serves.
func Served(classes []*networkingv1.IngressClass, others []string) map[string]bool {
	names := map[string]bool{}
	for _, c := range classes {
		known := c.Spec.Controller == controllerNginx || c.Spec.Controller == controllerTraefik
		names[c.Name] = c.Spec.Controller == Controller || known && slices.Contains(others, c.Name)
	}
	return names
}

// Ours returns the Ingresses of classes that the gateway serves.
func Ours(classes []*networkingv1.IngressClass, all []*networkingv1.Ingress, others []string) (ours []*networkingv1.Ingress) {
	names := Served(classes, others)
	for _, i := range all {
		if names[ClassName(i)] && i.DeletionTimestamp == nil {
			ours = append(ours, i)
		}
	}
	return ours
}

// ClassName returns the name of an Ingress's class.
func ClassName(i *networkingv1.Ingress) string {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName
	}
	return i.Annotations[annotationClass]
}

// nginxClasses returns the names of classes whose Ingresses expect what ingress-nginx does without annotations.
func nginxClasses(classes []*networkingv1.IngressClass) map[string]bool {
	names := map[string]bool{"nginx": true}
	for _, c := range classes {
		names[c.Name] = names[c.Name] || c.Spec.Controller == controllerNginx
	}
	return names
}

// Source returns how a configuration names the object that a route comes from.
func Source(kind string, o metav1.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
