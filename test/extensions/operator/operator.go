package operator

import (
	"context"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// reconciler makes a Deployment for each website of a namespace.
type reconciler struct {
	client.Client
	empty func() site // of the version that this operator knows
}

// Reconcile makes or changes the Deployment, and says in the status what there is.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w := r.empty()
	if err := r.Get(ctx, req.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	replicas, html := w.wanted()
	labels := map[string]string{"website": w.GetName()}
	d := &apps.Deployment{ObjectMeta: meta.ObjectMeta{Namespace: w.GetNamespace(), Name: w.GetName()}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, d, func() error {
		d.Spec.Replicas, d.Spec.Selector = &replicas, &meta.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		second := int64(0)
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = &second
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = make([]core.Container, 1)
		}
		c := &d.Spec.Template.Spec.Containers[0]
		c.Name, c.Image, c.Env = "web", "coracle.test/busybox:1", []core.EnvVar{{Name: "HTML", Value: html}}
		c.Command = []string{"sh", "-c", `mkdir /www && echo "$HTML" >/www/index.html && exec httpd -f -p 8080 -h /www`}
		return controllerutil.SetControllerReference(w, d, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	is := Status{Replicas: d.Status.Replicas, Ready: d.Status.ReadyReplicas, Selector: "website=" + w.GetName()}
	if *w.status() == is {
		return ctrl.Result{}, nil
	}
	*w.status() = is
	return ctrl.Result{}, r.Status().Update(ctx, w)
}

// operate runs the operator until the context ends. With hooks it serves the conversion between versions.
func operate(ctx context.Context, to *rest.Config, namespace string, empty func() site, hooks webhook.Server) error {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return err
	}
	register(s)
	again := true
	m, err := ctrl.NewManager(to, ctrl.Options{
		Scheme: s, WebhookServer: hooks, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &again},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return err
	}
	if hooks != nil {
		if err := ctrl.NewWebhookManagedBy(m, &Website{}).Complete(); err != nil {
			return err
		}
	}
	err = ctrl.NewControllerManagedBy(m).For(empty()).Owns(&apps.Deployment{}).Complete(&reconciler{m.GetClient(), empty})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}
