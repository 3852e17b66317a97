package maintenance

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Cluster coordinates servers with a Lease, and reports alarms in Events.
type Cluster struct {
	Client kubernetes.Interface // may keep leases in kube-system and create events
	Node   string               // this server's
}

// The Lease of the server that defragments. It expires if that server dies.
const (
	turnNamespace = "kube-system"
	turnLease     = "coracle-etcd-defrag"
	turnDuration  = 10 * time.Minute
)

// Turn takes the Lease, calls work, and releases the Lease. It does nothing if another server holds the Lease.
func (c Cluster) Turn(ctx context.Context, work func(context.Context) error) (bool, error) {
	leases := c.Client.CoordinationV1().Leases(turnNamespace)
	lease, err := leases.Get(ctx, turnLease, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return false, fmt.Errorf("reading the Lease of defragmentation: %w", err)
	}
	if !absent && !c.free(lease) {
		return false, nil
	}
	lease.Namespace, lease.Name, lease.Spec = turnNamespace, turnLease, c.turn(c.Node)
	if absent {
		lease, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil // another server was faster
	}
	if err != nil {
		return false, fmt.Errorf("taking the Lease of defragmentation: %w", err)
	}
	result := work(ctx)
	lease.Spec = c.turn("")
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil && result == nil {
		return true, fmt.Errorf("releasing the Lease of defragmentation: %w", err)
	}
	return true, result
}

func (c Cluster) free(lease *coordinationv1.Lease) bool {
	holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime
	return holder == nil || *holder == "" || *holder == c.Node || renewed == nil || time.Since(renewed.Time) > turnDuration
}

func (c Cluster) turn(holder string) coordinationv1.LeaseSpec {
	seconds, now := int32(turnDuration.Seconds()), metav1.NowMicro()
	return coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}
}

// Event writes an Event about alarms, or about their end, for this server's Node. It fails while etcd refuses writes; the log and coracle
// status show alarms then.
func (c Cluster) Event(ctx context.Context, alarms, before []Alarm) error {
	kind, reason, message := corev1.EventTypeNormal, "EtcdHealthy", ""
	for _, a := range before {
		message += fmt.Sprintf("etcd's alarm %s of %s is over. ", a.Kind, a.Member)
	}
	if len(alarms) > 0 {
		kind, reason, message = corev1.EventTypeWarning, "EtcdAlarm", ""
		for _, a := range alarms {
			message += fmt.Sprintf("%s of %s: %s. ", a.Kind, a.Member, a.Advice)
		}
	}
	source := corev1.EventSource{Component: "coracle", Host: c.Node}
	about := corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: c.Node, UID: types.UID(c.Node)} // as kubelets do
	err := kube.SendEvent(ctx, c.Client, source, about, kind, reason, message)
	if err != nil {
		return fmt.Errorf("writing an Event about etcd's alarms: %w", err)
	}
	return nil
}
