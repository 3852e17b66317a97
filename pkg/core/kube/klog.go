package kube

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// WithComponent returns a context under which Kubernetes code logs as the named component.
func WithComponent(ctx context.Context, component string) context.Context {
	s, _ := klog.Background().GetSink().(sink) // which has the process's filter, unless this is a test
	s.component = component
	return klog.NewContext(ctx, logr.New(s))
}

// setupKlog routes klog into logrus. Errors and warnings keep their level. klog's info lines are written for the developers of
// Kubernetes and are too many for an operator: they become debug, as do V(1) and V(2); V(3) and V(4) become trace.
func setupKlog() {
	var last atomic.Pointer[string]
	filter := &noiseFilter{seen: map[int]passingNoise{}}
	klog.SetLoggerWithOptions(logr.New(sink{noise: filter}), klog.ContextualLogger(true),
		klog.WriteKlogBuffer(func(line []byte) { filter.writeUnstructured(line, &last) }))
	switch level := logrus.GetLevel(); {
	case level >= logrus.TraceLevel:
		RaiseVerbosity(4)
	case level >= logrus.DebugLevel:
		RaiseVerbosity(2)
	}
	// A fatal error in Kubernetes ends the process. The reason is logged last.
	exit := klog.OsExit
	klog.OsExit = func(code int) {
		if why := last.Load(); why != nil {
			logrus.StandardLogger().Log(exitLevel(*why), "Kubernetes gave up: ", *why)
		}
		exit(code)
	}
}

// exitLevel returns the level of the last message. A controller that is just being made when all are stopped cannot make its client, and ends the process
// that is about to end: ClientOrDie of k8s.io/controller-manager.
func exitLevel(why string) logrus.Level {
	if strings.HasSuffix(why, errFenced.Error()) {
		return logrus.DebugLevel
	}
	return logrus.ErrorLevel
}

// RaiseVerbosity makes klog at least as verbose as level. It is never lowered: several parts share it.
func RaiseVerbosity(level int) {
	if klog.V(klog.Level(level)).Enabled() {
		return
	}
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	_ = fs.Set("v", fmt.Sprint(level)) // a number is always accepted
}

// writeUnstructured logs a complete line of klog: "E1121 10:44:00.000000 1234 file.go:56] text".
func (f *noiseFilter) writeUnstructured(line []byte, last *atomic.Pointer[string]) {
	prefix, message, ok := strings.Cut(string(line), "] ")
	if !ok {
		message = string(line)
	}
	message = strings.TrimSpace(message)
	level := logrus.DebugLevel
	switch {
	case strings.HasPrefix(prefix, "F"):
		last.Store(&message) // logged at the very end, by OsExit
		return
	case strings.HasPrefix(prefix, "E"):
		level, _ = f.level(logrus.ErrorLevel, message, nil)
	case strings.HasPrefix(prefix, "W"):
		level, _ = f.level(logrus.WarnLevel, message, nil)
	}
	if logrus.IsLevelEnabled(level) {
		logrus.WithField("component", callersComponent()).Log(level, message)
	}
}

// sink logs klog's structured lines. Without a component it takes that of the caller's package.
type sink struct {
	component string
	name      string
	values    []any
	noise     *noiseFilter
}

func (s sink) Init(logr.RuntimeInfo) {}

func (s sink) Enabled(level int) bool {
	return logrus.IsLevelEnabled(logrus.DebugLevel) && klog.V(klog.Level(level)).Enabled()
}

func (s sink) Info(level int, msg string, keysAndValues ...any) {
	if level > 2 {
		s.entry(keysAndValues).Trace(msg)
		return
	}
	s.entry(keysAndValues).Debug(msg)
}

func (s sink) Error(err error, msg string, keysAndValues ...any) {
	entry := s.entry(keysAndValues)
	if err != nil {
		entry = entry.WithError(err)
	}
	level, times := s.noise.level(logrus.ErrorLevel, msg, err)
	if times > 0 {
		entry = entry.WithField("times", times)
	}
	entry.Log(level, msg)
}

func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	s.values = append(s.values[:len(s.values):len(s.values)], keysAndValues...)
	return s
}

func (s sink) WithName(name string) logr.LogSink {
	if s.name != "" {
		name = s.name + "." + name
	}
	s.name = name
	return s
}

func (s sink) entry(keysAndValues []any) *logrus.Entry {
	fields := logrus.Fields{"component": s.component}
	if s.component == "" {
		fields["component"] = callersComponent()
	}
	if s.name != "" {
		fields["logger"] = s.name
	}
	for _, list := range [][]any{s.values, keysAndValues} {
		for i := 0; i+1 < len(list); i += 2 {
			fields[fieldName(list[i])] = fieldValue(list[i+1])
		}
	}
	return logrus.WithFields(fields)
}

// fieldName renames fields whose names logrus or coracle uses.
func fieldName(key any) string {
	switch name := fmt.Sprint(key); name {
	case "component", "logger", "error", "level", "msg", "time":
		return "k8s." + name
	default:
		return name
	}
}

// fieldValue resolves the lazy values that klog's callers pass.
func fieldValue(v any) any {
	switch v := v.(type) {
	case logr.Marshaler:
		return v.MarshalLog()
	case fmt.Stringer:
		return stringOf(v)
	default:
		return v
	}
}

// stringOf recovers from String methods that panic on a nil receiver.
func stringOf(v fmt.Stringer) (s string) {
	defer func() {
		if recover() != nil {
			s = "<nil>"
		}
	}()
	return v.String()
}

// origins map packages to components, for lines that are logged without a context.
var origins = []struct{ prefix, component string }{
	{"k8s.io/kubernetes/pkg/kubelet/", "kubelet"},
	{"k8s.io/kubernetes/cmd/kubelet/", "kubelet"},
	{"k8s.io/kubernetes/pkg/volume/", "kubelet"},
	{"k8s.io/kubernetes/pkg/proxy/", "kube-proxy"},
	{"k8s.io/kubernetes/cmd/kube-proxy/", "kube-proxy"},
	{"k8s.io/kubernetes/pkg/scheduler", "kube-scheduler"},
	{"k8s.io/kubernetes/cmd/kube-scheduler/", "kube-scheduler"},
	{"k8s.io/kubernetes/pkg/controller/", "kube-controller-manager"},
	{"k8s.io/kubernetes/cmd/kube-controller-manager/", "kube-controller-manager"},
	{"k8s.io/kubernetes/", "kube-apiserver"},
	{"k8s.io/apiserver/", "kube-apiserver"},
	{"k8s.io/apiextensions-apiserver/", "kube-apiserver"},
	{"k8s.io/kube-aggregator/", "kube-apiserver"},
	{"github.com/flannel-io/", "flannel"},
}

// callersComponent returns the component of the innermost function on the calling goroutine's stack that is in origins.
func callersComponent() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		for _, o := range origins {
			if strings.HasPrefix(frame.Function, o.prefix) {
				return o.component
			}
		}
		if !more {
			return "kubernetes"
		}
	}
}
