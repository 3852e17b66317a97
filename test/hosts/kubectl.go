package hosts

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// shared are the commands of kubectl that a test runs in its own process, over connections that start on the host: most of the time of such
// a command is the start of coracle's executable, and tests run thousands. The others run programs, or are tested themselves.
var shared = []string{
	"annotate", "apply", "cordon", "create", "delete", "describe", "get", "label", "patch", "rollout", "scale", "taint", "uncordon", "wait",
}

// elsewhere are flags that name files of the host, or another cluster or user than the host's.
var elsewhere = []string{"--kubeconfig", "--context", "--cluster", "--user", "--server", "--token", "--from-file", "--from-env-file", "--cert", "--key", "-s", "-v", "-k"}

// sharesKubectl reports whether kubectl may run in the test's process with these arguments.
func (h *Host) sharesKubectl(args []string) bool {
	command := args
	if len(args) > 2 && args[0] == "-n" {
		command = args[2:]
	}
	if len(command) == 0 || !slices.Contains(shared, command[0]) {
		return false
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(arg, "/") || strings.HasPrefix(value, "/") || slices.Contains(elsewhere, name) {
			return false
		}
	}
	return paths.Exists(h.kubeconfig())
}

func (h *Host) kubeconfig() string { return h.Path("/etc/coracle/kubeconfig.yaml") }

// failed is what kubectl says before it would end its process.
type failed struct {
	text string
	code int
}

// failKubectl makes kubectl's errors those of the command, in place of the end of the process.
func failKubectl() {
	util.BehaviorOnFatal(func(text string, code int) { panic(failed{text, code}) })
}

// kubectl runs a command in this process and returns its standard output; the error carries the rest.
func (h *Host) kubectl(args ...string) (string, error) {
	// Warnings of other requests of the process may reach problems too.
	out, problems := new(Output), new(Output)
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: problems}
	kubeconfig, cache := h.kubeconfig(), h.Path("/root/.kube/cache")
	flags := genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	flags.KubeConfig, flags.CacheDir = &kubeconfig, &cache
	var once sync.Once
	var direct *rest.Config
	flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		once.Do(func() { direct = h.direct(c, problems) })
		return rest.CopyConfig(direct)
	})
	err := runKubectl(cmd.KubectlOptions{IOStreams: streams, ConfigFlags: flags}, args)
	if direct != nil && direct.Transport != nil {
		utilnet.CloseIdleConnectionsFor(direct.Transport)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s%s", err, out, problems)
	}
	return out.String(), err
}

// direct is a client configuration with one transport, whose connections start on the host.
func (h *Host) direct(c *rest.Config, problems *Output) *rest.Config {
	c.Dial = h.Dial
	transport, err := rest.TransportFor(c)
	if err != nil {
		return c // its requests fail in the same way
	}
	return &rest.Config{
		Host: c.Host, Transport: transport, Timeout: c.Timeout, QPS: c.QPS, Burst: c.Burst,
		WarningHandler: rest.NewWarningWriter(problems, rest.WarningWriterOptions{Deduplicate: true}),
	}
}

func runKubectl(options cmd.KubectlOptions, args []string) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failed:
			fmt.Fprintln(options.ErrOut, strings.TrimRight(r.text, "\n"))
			err = fmt.Errorf("exit status %d", r.code)
		default:
			panic(r)
		}
	}()
	command := cmd.NewKubectlCommand(options)
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(options.Out)
	command.SetErr(options.ErrOut)
	if err := command.Execute(); err != nil {
		util.CheckErr(err)
	}
	return nil
}
