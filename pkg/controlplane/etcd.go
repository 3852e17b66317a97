package controlplane

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/etcd/maintenance"
	"github.com/coracle-dev/coracle/pkg/etcd/memberremoval"
)

// addEtcdServices adds the components that maintain coracle's own etcd, if the cluster uses it.
func addEtcdServices(g *lifecycle.Group, cfg config.Config, data storage, report *state.Recorder, lead, objects *lifecycle.Unit) error {
	if data.members == nil {
		return nil
	}
	kubeconfig := cfg.Dirs.ServerConfig("coracle.kubeconfig")
	client, err := kube.Client(kubeconfig)
	if err != nil {
		return err
	}
	cluster := maintenance.Cluster{Client: client, Node: cfg.Node.Name}
	g.Add("etcd-maintenance", maintenance.Maintenance{
		Members: data.members,
		Turn:    cluster.Turn,
		Tell: func(ctx context.Context, alarms, before []maintenance.Alarm) {
			report.Detail(state.EtcdDetail, reported(alarms))
			if err := cluster.Event(ctx, alarms, before); err != nil {
				logrus.WithField("component", "etcd-maintenance").WithError(err).Debug("creating an event for alarms")
			}
		},
	}, data.unit) // not after the API, which does not answer while there are alarms
	g.Add("etcd-members", memberremoval.Removal{Kubeconfig: kubeconfig, Own: cfg.Node.Name, Members: data.members}, lead, objects)
	return nil
}

func reported(alarms []maintenance.Alarm) []state.EtcdAlarm {
	all := []state.EtcdAlarm{}
	for _, a := range alarms {
		logrus.WithField("component", "etcd-maintenance").Errorf("etcd's alarm %s of %s: %s", a.Kind, a.Member, a.Advice)
		all = append(all, state.EtcdAlarm{Kind: a.Kind, Member: a.Member, Advice: a.Advice})
	}
	return all
}
