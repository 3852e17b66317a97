package helm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The two kinds, under the names that k3s and rke2 gave them. Their schema is in manifests/helm-crds.yaml.
var (
	chartKind   = schema.GroupVersionKind{Group: "helm.cattle.io", Version: "v1", Kind: "HelmChart"}
	chartsAPI   = chartKind.GroupVersion().WithResource("helmcharts")
	chartConfig = chartKind.GroupVersion().WithResource("helmchartconfigs")
)

const (
	// finalizer keeps a HelmChart until its release is uninstalled.
	finalizer = "coracle.io/helm-chart"
	// unmanagedAnnotation excludes a chart from the controller, also from uninstalling.
	unmanagedAnnotation = "helmcharts.helm.cattle.io/unmanaged"
	// managedByAnnotation names the controller of a chart if there are several; k3s writes helm-controller.
	managedByAnnotation = "helmcharts.cattle.io/managed-by"
	// retryAnnotation causes a chart to be applied again when its value changes.
	retryAnnotation = "helmcharts.coracle.io/retry"
)

// chart is a HelmChart.
type chart struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   chartSpec   `json:"spec"`
	Status chartStatus `json:"status"`

	// stored is the status in the API.
	stored chartStatus
}

// overrides are the fields that HelmChart and HelmChartConfig share.
type overrides struct {
	Values         map[string]any `json:"values,omitempty"`
	ValuesContent  string         `json:"valuesContent,omitempty"`
	ValuesSecrets  []valuesSecret `json:"valuesSecrets,omitempty"`
	FailurePolicy  failurePolicy  `json:"failurePolicy,omitempty"`
	ServerSide     string         `json:"serverSide,omitempty"`
	ForceConflicts bool           `json:"forceConflicts,omitempty"`
}

// chartSpec has the fields that are used; the schema has more, which only k3s' jobs need.
type chartSpec struct {
	overrides `json:",inline"`

	TargetNamespace string                        `json:"targetNamespace,omitempty"`
	CreateNamespace bool                          `json:"createNamespace,omitempty"`
	Chart           string                        `json:"chart,omitempty"`
	Version         string                        `json:"version,omitempty"`
	Repo            string                        `json:"repo,omitempty"`
	RepoCA          string                        `json:"repoCA,omitempty"`
	RepoCAConfigMap reference                     `json:"repoCAConfigMap,omitzero"`
	Set             map[string]intstr.IntOrString `json:"set,omitempty"`
	HelmVersion     string                        `json:"helmVersion,omitempty"`
	TakeOwnership   bool                          `json:"takeOwnership,omitempty"`
	ChartContent    string                        `json:"chartContent,omitempty"`
	Timeout         metav1.Duration               `json:"timeout,omitzero"`
	Driver          string                        `json:"driver,omitempty"`
	// ServiceAccountName is the ServiceAccount of the HelmChart's namespace with whose permissions everything is done; see as.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	AuthSecret            reference `json:"authSecret,omitzero"`
	AuthPassCredentials   bool      `json:"authPassCredentials,omitempty"`
	InsecureSkipTLSVerify bool      `json:"insecureSkipTLSVerify,omitempty"`
	PlainHTTP             bool      `json:"plainHTTP,omitempty"`
	DockerRegistrySecret  reference `json:"dockerRegistrySecret,omitzero"`
}

// reference names an object in the HelmChart's namespace.
type reference struct {
	Name string `json:"name,omitempty"`
}

// valuesSecret names keys of a Secret that contain values in YAML.
type valuesSecret struct {
	Name string   `json:"name"`
	Keys []string `json:"keys,omitempty"`
	// IgnoreUpdates makes the Secret optional, and its changes cause no upgrade.
	IgnoreUpdates bool `json:"ignoreUpdates,omitempty"`
}

// failurePolicy is what to do after a failed install or upgrade.
type failurePolicy string

const (
	policyUnset     failurePolicy = ""          // reinstall what was never deployed, roll back what was
	policyRollback  failurePolicy = "rollback"  // the same
	policyReinstall failurePolicy = "reinstall" // uninstall and install
	policyRetry     failurePolicy = "retry"     // upgrade again
	policyAbort     failurePolicy = "abort"     // nothing
)

// chartStatus is the status of a HelmChart. k3s has jobName, too, but there is never a job.
type chartStatus struct {
	Conditions []condition `json:"conditions,omitempty"`

	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Revision           int    `json:"revision,omitempty"`
	ChartVersion       string `json:"chartVersion,omitempty"`
	AppVersion         string `json:"appVersion,omitempty"`
	// Attempted is the hash of the last attempt, whether it succeeded or not.
	Attempted string `json:"attempted,omitempty"`
}

// condition has k3s' fields.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// namespace is the namespace of the release.
func (c *chart) namespace() string {
	if c.Spec.TargetNamespace != "" {
		return c.Spec.TargetNamespace
	}
	return c.Namespace
}

// timeout is how long Helm waits for one operation.
func (c *chart) timeout() time.Duration {
	return cmp.Or(c.Spec.Timeout.Duration, defaultTimeout)
}

// managed reports whether this controller applies the chart.
func (c *chart) managed() bool {
	if _, unmanaged := c.Annotations[unmanagedAnnotation]; unmanaged {
		return false
	}
	switch c.Annotations[managedByAnnotation] {
	case "", "helm-controller", "coracle":
		return c.Spec.Chart != "" || c.Spec.ChartContent != ""
	}
	return false
}

// decode decodes an object of the API.
func decode(obj any, into any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("reading a %T as a chart", obj)
	}
	data, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// partial decodes the fields of a HelmChart that are needed to report that others are invalid, and to remove it.
func partial(u *unstructured.Unstructured) *chart {
	ch := &chart{}
	field := func(name string) string {
		text, _, _ := unstructured.NestedString(u.Object, "spec", name)
		return text
	}
	ch.Spec.TargetNamespace, ch.Spec.Driver = field("targetNamespace"), field("driver")
	ch.Spec.Chart, ch.Spec.ChartContent = field("chart"), field("chartContent")
	ch.Spec.ServiceAccountName = field("serviceAccountName")
	_ = decode(&unstructured.Unstructured{Object: map[string]any{"status": u.Object["status"]}}, ch)
	ch.stored = ch.Status
	ch.Namespace, ch.Name, ch.UID = u.GetNamespace(), u.GetName(), u.GetUID()
	ch.Generation, ch.Annotations = u.GetGeneration(), u.GetAnnotations()
	ch.Finalizers, ch.DeletionTimestamp = u.GetFinalizers(), u.GetDeletionTimestamp()
	return ch
}
