// Package kube is the glue to upstream that several components share: process-wide settings, flags, logs, memory.
package kube

import (
	"net"
	"os"

	restclient "k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Notifier reports to the process that supervises this one, with sd_notify's protocol.
type Notifier struct{ conn net.Conn }

// SetupProcess makes the settings that Kubernetes keeps process-wide, once, before any of its code runs. It takes
// NOTIFY_SOCKET out of the environment: the apiserver and the kubelet would both send READY=1 themselves.
// Call it after logs.Setup: klog's verbosity follows the log level. gc is GOGC until garbage is collected for the first time.
func SetupProcess(gc int) Notifier {
	n := connectNotifier(os.Getenv("NOTIFY_SOCKET"))
	os.Unsetenv("NOTIFY_SOCKET")
	setupKlog()
	setupSlog()
	setupStdLog()
	// Each component applies its logging options when it starts; all but the first would fail.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// No user can act on deprecation warnings for coracle's own clients.
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	startGC(gc)
	return n
}

// connectNotifier connects now, because only root may, and the control plane gives root up.
func connectNotifier(socket string) Notifier {
	if socket == "" {
		return Notifier{}
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return Notifier{} // there is no supervisor any more
	}
	return Notifier{conn}
}

// Ready reports that the whole process is ready.
func (n Notifier) Ready() { n.send("READY=1") }

// Alive is a sign of life, without which the supervisor ends this process after a minute.
func (n Notifier) Alive() { n.send("WATCHDOG=1") }

func (n Notifier) send(message string) {
	if n.conn != nil {
		_, _ = n.conn.Write([]byte(message)) // there is nobody to report an error to
	}
}
