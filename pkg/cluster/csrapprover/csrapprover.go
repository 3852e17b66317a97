// Package csrapprover decides on the certificates that kubelets ask for. Serving certificates are approved for the
// node's own name and addresses, first client certificates for the name of the node that asks; everything else is
// denied, with a sentence. The renewal of client certificates is left to the controller-manager, and signing too.
package csrapprover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// grace is how long a request may be ahead of its Node object: a kubelet whose address has changed asks for a
// certificate and tells the API about the address at the same time.
const grace = time.Minute

// workers is how many requests are decided at the same time: when many machines join a busy server, each decision has
// to wait for the API.
const workers = 5

// Approver approves or denies requests for kubelets' certificates. Its identity needs the cluster role
// system:coracle:csr-approver; until it has it, Approver waits.
type Approver struct {
	Kubeconfig string
	Config     config.Config
	// Log takes a line per decision. Nil is logrus' standard logger.
	Log logrus.FieldLogger
}

// Run decides until ctx is done. It is ready when it has seen the requests that were there before it.
func (a Approver) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(a.Kubeconfig)
	if err != nil {
		return err
	}
	return a.run(ctx, client, ready)
}

func (a Approver) run(ctx context.Context, client kubernetes.Interface, ready func()) error {
	if a.Log == nil {
		a.Log = logrus.StandardLogger()
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Certificates().V1().CertificateSigningRequests()
	w := &worker{
		log:    a.Log.WithField("component", "csr-approver"),
		client: client, policy: newPolicy(a.Config),
		get:   informer.Lister().Get,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second)),
	}
	handled, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.enqueue,
		UpdateFunc: func(_, csr any) { w.enqueue(csr) },
	})
	if err != nil {
		return fmt.Errorf("watching certificate requests: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		return nil
	}
	ready()

	var working sync.WaitGroup
	for range workers {
		working.Go(func() { w.work(ctx) })
	}
	<-ctx.Done()
	w.queue.ShutDown()
	working.Wait()
	return nil
}

// worker takes one request after the other.
type worker struct {
	log    logrus.FieldLogger
	client kubernetes.Interface
	policy policy
	get    func(name string) (*certificates.CertificateSigningRequest, error)
	queue  workqueue.TypedRateLimitingInterface[string]
}

func (w *worker) enqueue(obj any) {
	if csr, ok := obj.(*certificates.CertificateSigningRequest); ok && pending(csr) {
		w.queue.Add(csr.Name)
	}
}

// kinds are the signers whose requests are decided here, with what people call the certificates.
var kinds = map[string]string{
	certificates.KubeletServingSignerName:             "serving",
	certificates.KubeAPIServerClientKubeletSignerName: "client",
}

// pending reports whether a request is for us and nobody has decided on it yet.
func pending(csr *certificates.CertificateSigningRequest) bool {
	return kinds[csr.Spec.SignerName] != "" && len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

func (w *worker) work(ctx context.Context) {
	for {
		name, down := w.queue.Get()
		if down {
			return
		}
		again, err := w.handle(ctx, name)
		if err != nil && ctx.Err() == nil {
			w.log.WithError(err).WithField("request", name).Warn("deciding on a certificate request; trying again")
		}
		if again || err != nil {
			w.queue.AddRateLimited(name)
		} else {
			w.queue.Forget(name)
		}
		w.queue.Done(name)
	}
}

// handle decides on one request. again asks for another try later.
func (w *worker) handle(ctx context.Context, name string) (again bool, err error) {
	csr, err := w.get(name)
	if apierrors.IsNotFound(err) || err == nil && !pending(csr) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if csr.Spec.SignerName == certificates.KubeAPIServerClientKubeletSignerName {
		v, ours := decideClient(csr)
		if !ours {
			return false, nil
		}
		return false, w.record(ctx, csr, v)
	}
	nodes, err := w.nodes(ctx)
	if err != nil {
		return false, err
	}
	v := w.policy.decide(csr, nodes)
	if v.wait && time.Since(csr.CreationTimestamp.Time) < grace {
		return true, nil
	}
	return false, w.record(ctx, csr, v)
}

// nodes lists the Nodes as the apiserver has them cached: this happens once or twice a year for each.
func (w *worker) nodes(ctx context.Context) ([]core.Node, error) {
	list, err := w.client.CoreV1().Nodes().List(ctx, meta.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// record writes the verdict into the request. That somebody else was quicker is no error.
func (w *worker) record(ctx context.Context, csr *certificates.CertificateSigningRequest, v verdict) error {
	condition := certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateDenied, Status: core.ConditionTrue,
		Reason: "CoracleDenied", Message: "coracle denied this request: " + v.reason,
	}
	if v.approve {
		condition.Type, condition.Reason = certificates.CertificateApproved, "CoracleApproved"
		condition.Message = "coracle checked the names and addresses"
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, condition)
	_, err := w.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, meta.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or decided on: a change comes as an event of its own
	}
	if err != nil {
		return fmt.Errorf("writing the decision: %w", err)
	}
	log := w.log.WithFields(logrus.Fields{"request": csr.Name, "user": csr.Spec.Username})
	if v.approve {
		log.Infof("approved a kubelet's %s certificate", kinds[csr.Spec.SignerName])
	} else {
		log.Warnf("denied a kubelet's %s certificate: %s", kinds[csr.Spec.SignerName], v.reason)
	}
	return nil
}
