package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// eventTimeout is how long the API server may take to store an Event.
const eventTimeout = 10 * time.Second

// SendEvent creates an Event of type Normal or Warning about an object. It is no error if the object's namespace is gone or
// being removed.
func SendEvent(ctx context.Context, client kubernetes.Interface, source corev1.EventSource, about corev1.ObjectReference, kind, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now, namespace := metav1.Now(), cmp.Or(about.Namespace, metav1.NamespaceDefault)
	_, err := client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", strings.TrimRight(about.Name[:min(len(about.Name), longestInEvent)], "-."), now.UnixNano()), Namespace: namespace},
		InvolvedObject: about, Type: kind, Reason: reason, Message: message, Source: source,
		ReportingController: source.Component, ReportingInstance: source.Host,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("creating an Event for %s %s: %w", about.Kind, about.Name, err)
	}
	return nil
}

// longestInEvent is how much of an object's name, in bytes, is in the name of an Event, which may not be longer than other names.
const longestInEvent = 200
