package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// nodeCommand takes nodes out of the cluster.
func nodeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "node",
	}
	return command.Group(c, nodeDrainCommand(), nodeRemoveCommand())
}

// draining holds the flags of commands that drain, with kubectl's names.
type draining struct {
	timeout  time.Duration
	grace    int
	bare     bool
	emptyDir bool
}

func (d *draining) flags(c *cobra.Command) {
	c.Flags().DurationVar(&d.timeout, "timeout", 5*time.Minute, "How long to wait for pods to go; 0 is for ever")
	c.Flags().IntVar(&d.grace, "grace-period", -1, "Seconds that each pod has to stop; negative is what the pod says")
	c.Flags().BoolVar(&d.emptyDir, "delete-emptydir-data", false, "Also evict pods with emptyDir volumes, whose data is lost")
}

func nodeDrainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move the pods off a node, and let no new ones come",
		Long: `Move the pods off a node, and let no new ones come: kubectl drain, except for pods of DaemonSets. Pod disruption budgets
are kept. coracle kubectl uncordon NAME lets pods come again.`,
		Example: `# Before the machine is switched off for an hour
coracle node drain agent-1`,
		Args:              oneNode,
		ValidArgsFunction: completeNodes,
	}
	var d draining
	d.flags(c)
	c.Flags().BoolVar(&d.bare, "force", false, "Also delete pods that no controller makes again elsewhere")
	return interruptible(with(c, installation.administer, func(c *cobra.Command, a admin, args []string) error {
		node, err := getNode(c.Context(), a.client, args[0])
		if err != nil {
			return err
		}
		if err := d.drain(c, a.client, node); err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "Node %s is drained. To let pods come again: coracle kubectl uncordon %[1]s\n", node.Name)
		return nil
	}))
}

func (d draining) drain(c *cobra.Command, client kubernetes.Interface, node *corev1.Node) error {
	helper := &drain.Helper{
		Ctx: c.Context(), Client: client, Force: d.bare, GracePeriodSeconds: d.grace, IgnoreAllDaemonSets: true, Timeout: d.timeout,
		DeleteEmptyDirData: d.emptyDir, Out: c.ErrOrStderr(), ErrOut: c.ErrOrStderr(),
		OnPodDeletionOrEvictionFinished: func(pod *corev1.Pod, _ bool, err error) {
			if err == nil {
				fmt.Fprintf(c.ErrOrStderr(), "pod %s/%s is gone\n", pod.Namespace, pod.Name)
			}
		},
	}
	if err := drain.RunCordonOrUncordon(helper, node, true); err != nil {
		return fmt.Errorf("keeping new pods off node %s: %w", node.Name, err)
	}
	if err := drain.RunNodeDrain(helper, node.Name); err != nil {
		return fmt.Errorf("draining node %s, which takes no new pods any more (coracle kubectl uncordon %[1]s changes that): %w", node.Name, err)
	}
	return nil
}

func nodeRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Take a node out of the cluster",
		Long: `Take a node out of the cluster: drain it if it lives, then refuse its keys and certificates at every server, and delete its
Node and the pods on it. Another machine can have its name then. The machine itself is left as it is: run coracle reset there.

The etcd member of a server goes too. A server has to be stopped before. The keys of a cluster that are on a server's disk are not
refused: they are every server's.`,
		Example: `# A node that lives
coracle node remove agent-1

# One that cannot be drained
coracle node remove agent-1 --force

# One whose Node was deleted before, with kubectl
coracle node remove agent-1 --force`,
		Args:              oneNode,
		ValidArgsFunction: completeNodes,
	}
	d := draining{bare: true}
	d.flags(c)
	force := c.Flags().Bool("force", false, "Do not drain: pods on the node are made again elsewhere while they may still run there")
	return interruptible(with(c, installation.administer, func(c *cobra.Command, a admin, args []string) error {
		key, err := endpoint.Claims{Client: a.client}.Holder(c.Context(), args[0])
		if err != nil {
			return err
		}
		node, err := getNode(c.Context(), a.client, args[0])
		if errors.Is(err, errNoNode) && *force && args[0] != a.config.Node.Name {
			return finishRemoval(c, a, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}, key)
		}
		if err != nil {
			return err
		}
		if err := d.beforeRemoval(c, a, node, *force); err != nil {
			return err
		}
		return finishRemoval(c, a, node, key)
	}))
}

// beforeRemoval drains a node that lives, unless forced, and refuses to remove a server that is needed.
func (d draining) beforeRemoval(c *cobra.Command, a admin, node *corev1.Node, force bool) error {
	ctx := c.Context()
	if err := notTheLast(ctx, a.client, node); err != nil {
		return err
	}
	server := kube.IsServer(node)
	if server && !force && serves(ctx, node, cmp.Or(a.config.API.Port, 6443)) {
		return fmt.Errorf("%s is running, and etcd keeps a server that runs: run coracle node drain %[1]s, then coracle reset "+
			"on that machine, then this again; --force removes it nevertheless", node.Name)
	}
	switch {
	case force:
	case server:
		fmt.Fprintf(c.ErrOrStderr(), "Server %s does not answer, so it is not drained.\n", node.Name)
	case !nodeReady(node):
		fmt.Fprintf(c.ErrOrStderr(), "Node %s is not Ready, so it is not drained.\n", node.Name)
	default:
		if err := d.drain(c, a.client, node); err != nil {
			return fmt.Errorf("%w; --force removes the node without draining it", err)
		}
	}
	return nil
}

// finishRemoval first refuses the machine with the key, whose kubelet would make the Node again, then deletes the Node and its pods; not those of
// another machine that has taken the name meanwhile. A Node without a UID is deleted already.
func finishRemoval(c *cobra.Command, a admin, node *corev1.Node, key string) error {
	ctx, name := c.Context(), node.Name
	claims := endpoint.Claims{Client: a.client}
	if err := claims.Revoke(ctx, name, key); err != nil {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	if node.UID != "" {
		its := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))}
		if err := a.client.CoreV1().Nodes().Delete(ctx, name, its); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting node %s, whose keys are refused now: %w", name, err)
		}
	}
	if err := claims.Evict(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "Removed node %s; its keys are refused. Run coracle reset on that machine; if it is to join again, it needs a token.\n", name)
	return nil
}

// notTheLast returns an error if the node is that of the only server.
func notTheLast(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	if !kube.IsServer(node) {
		return nil
	}
	servers, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: kube.ControlPlaneLabel + "=true"})
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	if len(servers.Items) < 2 {
		return fmt.Errorf("node %s is the last server, and the cluster is nowhere else: to end the cluster, run coracle reset on that machine", node.Name)
	}
	return nil
}

// serves reports whether a server's node answers on the API's port.
func serves(ctx context.Context, node *corev1.Node, port uint16) bool {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		dialer := net.Dialer{Timeout: 2 * time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(a.Address, strconv.Itoa(int(port))))
		if err == nil {
			conn.Close()
			return true
		}
	}
	return false
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

var errNoNode = errors.New("there is no node")

func getNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w %s; coracle kubectl get nodes shows all", errNoNode, name)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for node %s: %w", name, err)
	}
	return node, nil
}

func oneNode(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exitcode.Usagef("name one node, as coracle kubectl get nodes shows it")
	}
	return nil
}

func completeNodes(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if a, err := find().administer(); err == nil && len(given) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if nodes, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
			for _, n := range nodes.Items {
				names = append(names, n.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
