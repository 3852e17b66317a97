package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	helmkube "helm.sh/helm/v4/pkg/kube"
	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	// hashLabel is the hash of the desired state, on each revision that coracle made.
	hashLabel = "coracle.io/hash"
	// fromLabel is the namespace of the HelmChart, on each revision. Its name is the release's.
	fromLabel = "coracle.io/chart-namespace"
	// maxHistory is how many revisions of a release are kept; Helm's own default.
	maxHistory = 10
	// defaultTimeout is Helm's.
	defaultTimeout = 5 * time.Minute
)

// release is a chart's release as Helm sees it, for one action.
type release struct {
	chart   *chart
	clients *clients
	with    overrides // the HelmChart's, with the HelmChartConfig's over them
	config  *action.Configuration
	wait    []helmkube.WaitOption
	// created is called before a new revision is stored; may be nil. Helm stores it when the chart is rendered, before it
	// writes any of its objects.
	created func(*releasev1.Release) error
}

// store keeps revisions.
type store struct {
	driver.Driver
	release *release
}

// Create stores a new revision.
func (s store) Create(key string, stored helmrelease.Releaser) error {
	if revision, ok := stored.(*releasev1.Release); ok && s.release.created != nil {
		if err := s.release.created(revision); err != nil {
			return err
		}
	}
	return s.Driver.Create(key, stored)
}

// notValidating is Helm's client without its validation, which would fetch the API's whole OpenAPI document: server-side
// apply refuses unknown fields anyway.
type notValidating struct{ *helmkube.Client }

// Build reads manifests.
func (n notValidating) Build(r io.Reader, _ bool) (helmkube.ResourceList, error) {
	return n.Client.Build(r, false)
}

// newRelease prepares Helm. Waiting ends with ctx.
func (c *clients) newRelease(ctx context.Context, ch *chart, with overrides) (*release, error) {
	g, err := newGetter(c.config, ch.namespace())
	if err != nil {
		return nil, err
	}
	log := kube.SlogHandler("helm")
	client := helmkube.New(g)
	client.Namespace = ch.namespace()
	client.SetLogger(log)
	config := action.NewConfiguration(action.ConfigurationSetLogger(log))
	config.RESTClientGetter = g
	config.KubeClient = notValidating{client}
	config.HookOutputFunc = func(_, _, _ string) io.Writer { return io.Discard }
	r := &release{
		chart: ch, clients: c, with: with, config: config,
		wait: []helmkube.WaitOption{helmkube.WithWaitContext(ctx), helmkube.WithStatusComputeWorkers(4)},
	}
	if ch.Spec.Driver == "configmap" {
		r.keepIn(driver.NewConfigMaps(c.core.CoreV1().ConfigMaps(ch.namespace())))
	} else {
		r.keepIn(driver.NewSecrets(c.core.CoreV1().Secrets(ch.namespace())))
	}
	return r, nil
}

// keepIn sets where revisions are stored.
func (r *release) keepIn(d driver.Driver) { r.config.Releases = storage.Init(store{d, r}) }

// history lists the revisions from their labels, oldest first. Their contents may be megabytes.
func (c *clients) history(ctx context.Context, ch *chart) ([]revision, error) {
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	if ch.Spec.Driver == "configmap" {
		resource.Resource = "configmaps"
	}
	list, err := c.metadata.Resource(resource).Namespace(ch.namespace()).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{"owner": "helm", "name": ch.Name}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the release's revisions: %w", err)
	}
	var out []revision
	for _, item := range list.Items {
		version, err := strconv.Atoi(item.Labels["version"])
		if err == nil {
			out = append(out, revision{version, common.Status(item.Labels["status"]), item.Labels[hashLabel], item.Labels[fromLabel]})
		}
	}
	slices.SortFunc(out, func(a, b revision) int { return a.version - b.version })
	return out, nil
}

// createNamespace creates the namespace of the release, if createNamespace is set.
func (r *release) createNamespace(ctx context.Context) error {
	name := r.chart.namespace()
	if !r.chart.Spec.CreateNamespace || name == r.chart.Namespace {
		return nil
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	_, err := r.clients.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{FieldManager: "helm"})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// install makes the first revision, and returns its number.
func (r *release) install(c *chartv2.Chart, values map[string]any, hash string) (int, error) {
	return versionOf(r.installer(hash).Run(c, values))
}

// versionOf is the number of the revision that an action returned.
func versionOf(made helmrelease.Releaser, err error) (int, error) {
	if revision, ok := made.(*releasev1.Release); ok && revision != nil {
		return revision.Version, err
	}
	return 0, err
}

// installer is Helm's action with the chart's settings.
func (r *release) installer(hash string) *action.Install {
	i := action.NewInstall(r.config)
	i.ReleaseName, i.Namespace = r.chart.Name, r.chart.namespace()
	i.Replace = true // a release that was uninstalled and kept
	i.Timeout, i.WaitStrategy, i.WaitOptions = r.chart.timeout(), helmkube.HookOnlyStrategy, r.wait
	i.ServerSideApply = r.with.ServerSide != "false"
	i.ForceConflicts = r.with.ForceConflicts && i.ServerSideApply
	i.TakeOwnership = r.chart.Spec.TakeOwnership
	i.DisableOpenAPIValidation = true
	i.Labels = r.labels(hash)
	return i
}

// upgrade makes another revision, and returns its number. With wait, it is an error if not all objects are ready in time.
func (r *release) upgrade(c *chartv2.Chart, values map[string]any, hash string, wait bool) (int, error) {
	u := action.NewUpgrade(r.config)
	u.Namespace = r.chart.namespace()
	u.Timeout, u.WaitStrategy, u.WaitOptions = r.chart.timeout(), helmkube.HookOnlyStrategy, r.wait
	if wait {
		u.WaitStrategy = helmkube.StatusWatcherStrategy
	}
	u.ServerSideApply, u.ForceConflicts = r.apply()
	u.TakeOwnership = r.chart.Spec.TakeOwnership
	u.ResetValues = true // otherwise Helm keeps values that were removed
	u.MaxHistory = maxHistory
	u.DisableOpenAPIValidation = true
	u.Labels = r.labels(hash)
	return versionOf(u.Run(r.chart.Name, c, values))
}

// labels are the labels of a revision.
func (r *release) labels(hash string) map[string]string {
	return map[string]string{hashLabel: hash, fromLabel: r.chart.Namespace}
}

// apply is how objects are written: with server-side apply or not; "auto" is as in the previous revision.
func (r *release) apply() (serverSide string, force bool) {
	switch {
	case r.with.ServerSide == "false":
		return "false", false
	case r.with.ForceConflicts:
		return "true", true // only server-side apply knows conflicts
	case r.with.ServerSide == "true":
		return "true", false
	}
	return "auto", false
}

// rollback returns from a failed revision to an earlier one, and waits until all objects are ready.
func (r *release) rollback(from, to int) error {
	b := action.NewRollback(r.config)
	b.Version, b.MaxHistory = to, maxHistory
	b.Timeout, b.WaitStrategy, b.WaitOptions = r.chart.timeout(), helmkube.StatusWatcherStrategy, r.wait
	if serverSide, force := r.apply(); force {
		b.ServerSideApply, b.ForceConflicts = serverSide, force
	}
	err := b.Run(r.chart.Name)
	if err == nil {
		return nil
	}
	// Helm has marked the failed revision as superseded, as if it had been deployed.
	return errors.Join(err, r.markFailed(from, "it was to be rolled back, which failed: "+err.Error()))
}

// uninstall removes the release, and returns when its objects are gone. It is no error if there is none.
func (r *release) uninstall(ctx context.Context) error {
	// Helm's IgnoreNotFound ignores every other error, too.
	history, err := r.clients.history(ctx, r.chart)
	if err != nil || len(history) == 0 {
		return err
	}
	u := action.NewUninstall(r.config)
	u.Timeout, u.WaitStrategy, u.WaitOptions = r.chart.timeout(), helmkube.StatusWatcherStrategy, r.wait
	u.DeletionPropagation = "background"
	_, err = u.Run(r.chart.Name)
	return err
}

// versions are the versions of the chart and the application in the newest revision; "" if it cannot be read.
func (r *release) versions() (chart, app string) {
	found, err := r.config.Releases.Last(r.chart.Name)
	if last, ok := found.(*releasev1.Release); err == nil && ok && last.Chart != nil && last.Chart.Metadata != nil {
		return last.Chart.Metadata.Version, last.Chart.Metadata.AppVersion
	}
	return "", ""
}

// markFailed marks a revision as failed. Helm refuses to make another one while the newest is pending.
func (r *release) markFailed(version int, why string) error {
	found, err := r.config.Releases.Get(r.chart.Name, version)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading revision %d: %w", version, err)
	}
	revision, ok := found.(*releasev1.Release)
	if !ok {
		return fmt.Errorf("reading revision %d: it is a %T", version, found)
	}
	revision.Info.Status, revision.Info.Description = common.StatusFailed, shorten(why)
	if err := r.config.Releases.Update(revision); err != nil {
		return fmt.Errorf("marking revision %d as failed: %w", version, err)
	}
	return nil
}
