package observability

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// rain records the same Event of an object several times. They are sent by and by; stop drops those that are not sent yet.
func rain(client kubernetes.Interface, about runtime.Object, namespace string, times int) (stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events(namespace)})
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), core.EventSource{Component: "weather"})
	for range times {
		recorder.Event(about, core.EventTypeNormal, "Raining", "it still rains")
	}
	return broadcaster.Shutdown
}
