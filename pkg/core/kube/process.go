// Package kube is the glue to upstream that several components share: process-wide settings, flags, logs, memory.
package kube

import (
	"net"
	"os"

	restclient "k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Notifier reports to the process that supervises this one, with sd_notify's protocol.
type Notifier struct{ socket string }

// SetupProcess makes the settings that Kubernetes keeps process-wide, once, before any of its code runs. It takes
// NOTIFY_SOCKET out of the environment: the apiserver and the kubelet would both send READY=1 themselves.
// Call it after logs.Setup: klog's verbosity follows the log level.
func SetupProcess() Notifier {
	n := Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	setupKlog()
	setupSlog()
	setupStdLog()
	// Each component applies its logging options when it starts; all but the first would fail.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// No user can act on deprecation warnings for coracle's own clients.
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	startGC()
	return n
}

// Ready reports that the whole process is ready.
func (n Notifier) Ready() {
	if n.socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", n.socket)
	if err != nil {
		return // there is no supervisor any more
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("READY=1"))
}
