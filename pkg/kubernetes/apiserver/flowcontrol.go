package apiserver

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	flowcontrol "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/ensurer"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
)

// ensureFlowControl makes the priority levels and flow schemas that are missing or were changed.
func ensureFlowControl(ctx context.Context, client *kubernetes.Clientset, informers informers.SharedInformerFactory) error {
	levels, schemas := informers.Flowcontrol().V1().PriorityLevelConfigurations(), informers.Flowcontrol().V1().FlowSchemas()
	if !cache.WaitForCacheSync(ctx.Done(), levels.Informer().HasSynced, schemas.Informer().HasSynced) {
		return errors.New("the server stopped before its informers were ready")
	}
	levelOps := ensurer.NewPriorityLevelConfigurationOps(client.FlowcontrolV1().PriorityLevelConfigurations(), levels.Lister())
	schemaOps := ensurer.NewFlowSchemaOps(client.FlowcontrolV1().FlowSchemas(), schemas.Lister())
	if err := parallel(append(
		ensure(ctx, levelOps, flowcontrol.SuggestedPriorityLevelConfigurations, ensurer.NewSuggestedEnsureStrategy),
		ensure(ctx, levelOps, flowcontrol.MandatoryPriorityLevelConfigurations, ensurer.NewMandatoryEnsureStrategy)...,
	)); err != nil {
		return err
	}
	return parallel(append(
		ensure(ctx, schemaOps, flowcontrol.SuggestedFlowSchemas, ensurer.NewSuggestedEnsureStrategy),
		ensure(ctx, schemaOps, flowcontrol.MandatoryFlowSchemas, ensurer.NewMandatoryEnsureStrategy)...,
	))
}

type ensured interface {
	comparable
	metav1.Object
	runtime.Object
}

// ensure returns the work of ensuring each of the wanted objects.
func ensure[T ensured](ctx context.Context, ops ensurer.ObjectOps[T], wanted []T, strategy func() ensurer.EnsureStrategy[T]) []func() error {
	var all []func() error
	for _, object := range wanted {
		all = append(all, func() error { return ensurer.EnsureConfiguration(ctx, ops, object, strategy()) })
	}
	return all
}

// keepFlowControl returns upstream's hook, which checks the objects again every minute.
func keepFlowControl(informers informers.SharedInformerFactory) (genericserver.PostStartHookFunc, error) {
	_, hook, err := flowcontrolrest.RESTStorageProvider{InformerFactory: informers}.PostStartHook()
	return hook, err
}
