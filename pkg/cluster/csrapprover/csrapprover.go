// Package csrapprover decides on the certificates that kubelets request. It approves a serving certificate for the node's own name and
// addresses, and a client certificate for the name of the requesting node, of a machine that was not removed or replaced; it denies all other
// requests, with a reason. The controller-manager signs the certificates.
package csrapprover

import (
	"cmp"
	"context"
	"fmt"
	"strings"
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

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeguard"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// grace is how long a request may be ahead of its Node object: a kubelet whose address has changed requests a certificate and reports the
// address to the API at the same time.
const grace = time.Minute

// workers is the number of requests that are decided at the same time: when many machines join a busy server, each decision waits for the
// API.
const workers = 5

const component = "csr-approver"

// Approver approves or denies requests for kubelets' certificates. Its identity needs the cluster role system:coracle:csr-approver; until it has
// that role, Approver waits.
type Approver struct {
	Kubeconfig string
	Config     config.Config
}

// Run decides until ctx is done. It is ready when it knows the requests that existed before.
func (a Approver) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, a.Kubeconfig)
	if err != nil {
		return err
	}
	return a.run(ctx, client, ready)
}

func (a Approver) run(ctx context.Context, client kubernetes.Interface, ready func()) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Certificates().V1().CertificateSigningRequests()
	w := &worker{
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
		working.Go(func() { kube.Work(ctx, component, w.queue, w.handle) })
	}
	<-ctx.Done()
	w.queue.ShutDown()
	working.Wait()
	return nil
}

// worker decides on one request after the other.
type worker struct {
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

// kinds are the kinds of certificates, by the signers whose requests are decided here.
var kinds = map[string]string{
	certificates.KubeletServingSignerName:             "serving",
	certificates.KubeAPIServerClientKubeletSignerName: "client",
}

// pending reports whether a request has one of the signers and no decision yet.
func pending(csr *certificates.CertificateSigningRequest) bool {
	return kinds[csr.Spec.SignerName] != "" && len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

// handle decides on one request, or enqueues it again while its Node may still change.
func (w *worker) handle(ctx context.Context, name string) error {
	csr, err := w.get(name)
	if apierrors.IsNotFound(err) || err == nil && !pending(csr) {
		return nil
	}
	if err != nil {
		return err
	}
	if csr.Spec.SignerName == certificates.KubeAPIServerClientKubeletSignerName {
		if v, ours := decideClient(csr); ours {
			return w.finish(ctx, csr, v)
		}
		return nil
	}
	// From the API server's cache. A request for each node comes once or twice a year.
	nodes, err := w.client.CoreV1().Nodes().List(ctx, meta.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing nodes for certificate request %s: %w", name, err)
	}
	v := w.policy.decide(csr, nodes.Items)
	if age := time.Since(csr.CreationTimestamp.Time); v.wait && age < grace {
		w.queue.AddAfter(name, min(max(age.Abs()/5, 200*time.Millisecond), 10*time.Second)) // another server's clock may be ahead
		return nil
	}
	return w.finish(ctx, csr, v)
}

// finish records the verdict. Before an approval it records the certificate's key in the claim on the node name, unless the request was
// made with a key that may not use the name any more.
func (w *worker) finish(ctx context.Context, csr *certificates.CertificateSigningRequest, v verdict) error {
	if v.approve {
		by := strings.Join(csr.Spec.Extra[nodeguard.KeyExtra], "")
		claims := endpoint.Claims{Client: w.client}
		err := claims.Allow(ctx, nodeOf(csr), by, cmp.Or(v.key, by))
		if err == nil && v.key == "" { // a serving certificate, so there is a Node
			err = claims.Registered(ctx, nodeOf(csr))
		}
		if endpoint.IsRefusal(err) {
			v = deny("%v", err)
		} else if err != nil {
			return err
		}
	}
	return w.record(ctx, csr, v)
}

// record writes the verdict into the request, unless another client has decided first.
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
		return nil // it was deleted, or changed; the event of a change enqueues it again
	}
	if err != nil {
		return fmt.Errorf("deciding on certificate request %s: %w", csr.Name, err)
	}
	log := logrus.WithFields(logrus.Fields{"component": component, "request": csr.Name, "user": csr.Spec.Username})
	if v.approve {
		log.Infof("approved a kubelet's %s certificate", kinds[csr.Spec.SignerName])
	} else {
		log.Warnf("denied a kubelet's %s certificate: %s", kinds[csr.Spec.SignerName], v.reason)
	}
	return nil
}
