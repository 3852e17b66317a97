package scheduling

import (
	"context"
	"fmt"
	"strconv"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	"k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
)

// scheduler is upstream's scheduler with one more plug-in.
func scheduler(args []string) (code int) {
	command := app.NewSchedulerCommand(app.WithPlugin("Price", func(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
		return Price{}, nil
	}))
	command.SetArgs(args)
	return cli.Run(command)
}

// Price is a plug-in of the scheduler. It refuses nodes without the label example.org/price, and prefers the cheapest.
type Price struct{}

// Name is what the scheduler's configuration calls it.
func (Price) Name() string { return "Price" }

// Filter says whether the pod may run on the node, and why not.
func (Price) Filter(_ context.Context, _ framework.CycleState, _ *core.Pod, node framework.NodeInfo) *framework.Status {
	if _, err := price(node); err != nil {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, err.Error())
	}
	return nil
}

// Score is the node's price.
func (Price) Score(_ context.Context, _ framework.CycleState, _ *core.Pod, node framework.NodeInfo) (int64, *framework.Status) {
	p, err := price(node)
	return p, framework.AsStatus(err)
}

// ScoreExtensions says that the scores are not from 0 to 100 yet.
func (p Price) ScoreExtensions() framework.ScoreExtensions { return p }

// NormalizeScore turns prices into scores from 0, for the highest price, to 100.
func (Price) NormalizeScore(_ context.Context, _ framework.CycleState, _ *core.Pod, scores framework.NodeScoreList) *framework.Status {
	return helper.DefaultNormalizeScore(framework.MaxNodeScore, true, scores)
}

// EventsToRegister says after which changes refused pods are tried again.
func (Price) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{{Event: framework.ClusterEvent{Resource: framework.Node, ActionType: framework.Add | framework.UpdateNodeLabel}}}, nil
}

func price(node framework.NodeInfo) (int64, error) {
	p, err := strconv.ParseUint(node.Node().Labels["example.org/price"], 10, 31)
	if err != nil {
		return 0, fmt.Errorf("the label example.org/price of node %s is no number", node.Node().Name)
	}
	return int64(p), nil
}
