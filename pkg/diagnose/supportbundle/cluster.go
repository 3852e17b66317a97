package supportbundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// resource is a kind of objects that is collected. Secrets are not in the table; only the function Secrets reads them.
type resource struct {
	gvr        schema.GroupVersionResource
	namespaces []string // "" for all
	fields     string   // a field selector
}

func in(group, version string, names ...string) (out []resource) {
	for _, name := range names {
		out = append(out, resource{schema.GroupVersionResource{Group: group, Version: version, Resource: name}, []string{metav1.NamespaceAll}, ""})
	}
	return out
}

// resources are in the order in which they are most useful.
var resources = slices.Concat(
	in("", "v1", "nodes", "pods", "namespaces", "services", "persistentvolumes", "persistentvolumeclaims", "resourcequotas", "limitranges"),
	[]resource{{gvr: corev1.SchemeGroupVersion.WithResource("configmaps"), namespaces: []string{"kube-system", "kube-public"}}},
	in("coordination.k8s.io", "v1", "leases"),
	in("apps", "v1", "deployments", "daemonsets", "statefulsets", "replicasets"),
	in("batch", "v1", "jobs", "cronjobs"),
	in("discovery.k8s.io", "v1", "endpointslices"),
	in("networking.k8s.io", "v1", "networkpolicies", "ingresses", "ingressclasses"),
	in("storage.k8s.io", "v1", "storageclasses", "csinodes", "csidrivers", "volumeattachments"),
	in("policy", "v1", "poddisruptionbudgets"),
	in("autoscaling", "v2", "horizontalpodautoscalers"),
	in("scheduling.k8s.io", "v1", "priorityclasses"),
	in("node.k8s.io", "v1", "runtimeclasses"),
	in("certificates.k8s.io", "v1", "certificatesigningrequests"),
	in("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
	in("apiregistration.k8s.io", "v1", "apiservices"),
)

// ofNode returns what a node is authorised to read.
func ofNode(name string) []resource {
	nodes, pods := in("", "v1", "nodes"), in("", "v1", "pods")
	nodes[0].fields, pods[0].fields = "metadata.name="+name, "spec.nodeName="+name
	return slices.Concat(nodes, pods, in("", "v1", "services"), in("node.k8s.io", "v1", "runtimeclasses"), in("storage.k8s.io", "v1", "csidrivers"))
}

// Objects collects the objects of the cluster, in a file for each kind.
func Objects(config *rest.Config) func(context.Context, *Files) error {
	return objects(config, resources)
}

// NodeObjects is Objects with the rights of a node, which can read itself and its pods.
func NodeObjects(config *rest.Config, name string) func(context.Context, *Files) error {
	return objects(config, ofNode(name))
}

func objects(config *rest.Config, resources []resource) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		for _, r := range resources {
			items, err := list(ctx, client, r)
			if len(items) > 0 || err == nil {
				data, err := encodeList(items)
				if err != nil {
					return fmt.Errorf("encoding %s: %w", r.gvr.Resource, err)
				}
				to.Add(r.gvr.Resource+".json", data)
			}
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("the API did not answer in time when it was asked for %s", r.gvr.Resource)
			case err != nil:
				to.Note("%s: %v", r.gvr.Resource, err)
			}
			if unreachable(err) { // requests for others would fail too
				return nil
			}
		}
		return nil
	}
}

// unreachable reports an error that did not come from the API.
func unreachable(err error) bool {
	_, answered := err.(apierrors.APIStatus)
	return err != nil && !answered
}

// most limits the objects of one kind that are collected.
const most = 5000

func list(ctx context.Context, client dynamic.Interface, r resource) (items []unstructured.Unstructured, err error) {
	for _, namespace := range r.namespaces {
		list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(r.gvr).Namespace(namespace).List(ctx, options)
		})
		err := list.EachListItem(ctx, metav1.ListOptions{FieldSelector: r.fields}, func(object runtime.Object) error {
			if len(items) >= most {
				return fmt.Errorf("there are more than %d; the others are left out", most)
			}
			items = append(items, *object.(*unstructured.Unstructured))
			return nil
		})
		if err != nil {
			return items, err
		}
	}
	return items, nil
}

func encodeList(items []unstructured.Unstructured) ([]byte, error) {
	for i := range items {
		clean(items[i].Object)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: items}
	return json.MarshalIndent(list, "", " ")
}

// hidden are the lists whose values may be secrets: variables and headers. Their names are kept.
var hidden = map[string]bool{"env": true, "httpHeaders": true}

// lastApplied is an annotation that repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// clean removes from an object the values of variables, headers and flags that may be secrets, and what only repeats other fields.
func clean(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "managedFields")
		if annotations, ok := v["annotations"].(map[string]any); ok {
			delete(annotations, lastApplied)
		}
		for key, child := range v {
			list, _ := child.([]any)
			if hidden[key] {
				hide(list)
			}
			if key == "args" || key == "command" {
				cleanArguments(list)
			}
			clean(child)
		}
	case []any:
		for _, child := range v {
			clean(child)
		}
	}
}

func hide(list []any) {
	for _, one := range list {
		if m, ok := one.(map[string]any); ok && m["value"] != nil {
			m["value"] = redact.Removed
		}
	}
}

// cleanArguments removes what follows a flag such as --password: a line of the file has one argument, and each line is redacted alone.
func cleanArguments(list []any) {
	args := make([]string, len(list))
	for i := range list {
		args[i], _ = list[i].(string)
	}
	for i, arg := range new(redact.Redactor).Args(args) {
		if _, is := list[i].(string); is {
			list[i] = arg
		}
	}
}

// Events collects events, as lines in the order of time.
func Events(config *rest.Config) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{Limit: most})
		if err != nil {
			return fmt.Errorf("listing events: %w", err)
		}
		slices.SortStableFunc(events.Items, func(a, b corev1.Event) int { return when(a).Compare(when(b)) })
		var out bytes.Buffer
		for _, e := range events.Items {
			count := ""
			if e.Count > 1 {
				count = fmt.Sprintf(" (%d times)", e.Count)
			}
			fmt.Fprintf(&out, "%s %-7s %s %s/%s/%s%s: %s\n", when(e).UTC().Format(time.RFC3339), e.Type, e.Reason,
				e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, count, strings.ReplaceAll(e.Message, "\n", " "))
		}
		to.Add("", out.Bytes())
		return nil
	}
}

// when returns the last time of an event, which may be in one of several fields.
func when(e corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// Healthz collects the API server's health endpoints.
func Healthz(config *rest.Config) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		for _, path := range []string{"version", "livez", "readyz"} {
			data, err := client.RESTClient().Get().AbsPath("/"+path).Param("verbose", "true").DoRaw(ctx)
			if len(data) > 0 {
				to.Add(path+".txt", append(data, '\n'))
			}
			if err != nil {
				to.Note("%s: %v", path, err)
			}
		}
		return nil
	}
}

// Secrets reads the values of the cluster's Secrets, for the redactor only.
func Secrets(ctx context.Context, config *rest.Config) (values []string, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Secrets("").List(ctx, options)
	})
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		values = append(values, redact.SecretValues(object.(*corev1.Secret).Data)...)
		return nil
	})
	if err != nil {
		return values, fmt.Errorf("reading the cluster's Secrets, to be able to remove their values: %w", err)
	}
	return values, nil
}
