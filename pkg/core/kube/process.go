// Package kube is the glue to upstream that several components share: process-wide settings, flags, logs, memory.
package kube

import (
	"net"
	"os"

	restclient "k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Notifier tells the process that supervises this one how it is doing, in sd_notify's protocol.
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
	// Each part applies its logging options when it starts; all but the first must be let through.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// Deprecation warnings that the API server answers to our own clients are for nobody.
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	startGC()
	return n
}

// Ready says that the whole process is ready.
func (n Notifier) Ready() {
	if n.socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", n.socket)
	if err != nil {
		return // nobody listens: nothing to tell
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("READY=1"))
}
