package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/cmd/ctr/app"
	urfave "github.com/urfave/cli/v3"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's authentication plugins
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	klogs "k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/definitions"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

// kubectl is upstream's command, with this machine's cluster as its default.
func kubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...) // kubectl and its plugins read it
	util.BehaviorOnFatal(fatalWith(defaultKubeconfig(find())))
	_, _ = klogs.GlogSetter(cmd.GetLogVerbosity(os.Args)) // kubectl handles plugins and .kuberc before it parses flags
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return 0
}

// defaultKubeconfig makes kubectl use the kubeconfig that coracle wrote, unless the user has one. It returns a hint for the user
// to print if kubectl fails for lack of a kubeconfig.
func defaultKubeconfig(here installation) (hint string) {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return ""
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return ""
	}
	path := here.kubeconfig()
	f, err := os.Open(path)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, fs.ErrPermission):
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path) // so that kubectl reports which file it cannot read
		return "Only root may read it: use sudo, or make yourself a copy with " +
			"'sudo coracle kubeconfig --merge --output ~/.kube/config'."
	default:
		if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
			return "" // in a pod kubectl finds its cluster by itself
		}
		return fmt.Sprintf("There is no %s: start a cluster here with 'coracle server', or name another with KUBECONFIG "+
			"or --kubeconfig.", path)
	}
	os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
	return ""
}

// clientConfig reads a kubeconfig, "" for the one that kubectl here uses, with a context of it, "" for its current one.
func clientConfig(here installation, kubeconfig, context string) (*rest.Config, clientcmd.ClientConfig, error) {
	hint := defaultKubeconfig(here)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err := loader.ClientConfig()
	if err != nil {
		if hint != "" && kubeconfig == "" {
			err = fmt.Errorf("%w. %s", err, hint)
		}
		return nil, nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return config, loader, nil
}

// unconfigured are parts of kubectl's messages when it has no usable kubeconfig.
var unconfigured = []string{"localhost:8080", "no configuration", "permission denied"}

// fatalWith ends kubectl as kubectl does, and prints a hint if it had no usable kubeconfig, or if the Gateway API is not installed.
func fatalWith(hint string) func(msg string, code int) {
	return func(msg string, code int) {
		if msg = strings.TrimRight(msg, "\n"); msg != "" {
			fmt.Fprintln(os.Stderr, msg)
		}
		if hint != "" && slices.ContainsFunc(unconfigured, func(s string) bool { return strings.Contains(msg, s) }) {
			fmt.Fprintln(os.Stderr, hint)
		}
		if hint := definitions.Hint(msg); hint != "" {
			fmt.Fprintln(os.Stderr, hint)
		}
		os.Exit(code)
	}
}

// ctr is containerd's command; by default it talks to coracle's containerd about Kubernetes' containers.
func ctr(args []string) int {
	command := app.New()
	defaults := map[string]string{"address": find().dirs.ContainerdSocket(), "namespace": images.Namespace}
	for _, flag := range command.Flags {
		if f, ok := flag.(*urfave.StringFlag); ok && defaults[f.Name] != "" {
			f.Value = defaults[f.Name]
		}
	}
	if err := command.Run(context.Background(), append([]string{"ctr"}, args...)); err != nil {
		fmt.Fprintln(os.Stderr, "ctr:", err)
		return 1
	}
	return 0
}
