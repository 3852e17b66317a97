package coredns

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// reload loads a Corefile. If it is invalid, the Corefile in use is loaded again with other changes, such as of upstreams.
func (r *running) reload(ctx context.Context, c candidate) error {
	err := r.load(c.corefile, c.source)
	if err == nil {
		return nil
	}
	r.reject(ctx, err)
	if c.corefile != r.corefile && !slices.Equal(r.upstreams, r.report.Upstreams) {
		_ = r.restore()
	}
	return err
}

// restore loads the Corefile in use again, and leaves the report of an error as it is.
func (r *running) restore() error {
	reported := r.report.Error
	err := r.load(r.corefile, r.report.Source)
	if err != nil {
		r.log.WithError(err).Warn("loading the Corefile in use again")
	}
	r.setReport(func(s *clusterdns.Status) { s.Error = reported })
	return err
}

// load replaces the Corefile in use, or changes nothing and returns an error.
func (r *running) load(corefile, source string) error {
	text, err := render(corefile, setting{listen: r.listen, upstreams: r.upstreams})
	if err != nil {
		return err
	}
	if err := r.fillDirectory(); err != nil {
		return err
	}
	child, err := r.child()
	if err != nil {
		return err
	}
	r.readsPods.Store(slices.ContainsFunc(tokens(corefile), func(t token) bool { return t.text == "verified" }))
	if err := child.load(text); err != nil {
		return err
	}
	r.corefile = corefile
	r.setSource(source)
	r.setReport(func(s *clusterdns.Status) {
		s.Upstreams, s.Loaded, s.Error = r.upstreams, time.Now(), ""
	})
	r.log.WithFields(logrus.Fields{"corefile": source, "listen": r.report.Listen, "upstreams": r.upstreams, "pid": child.pid}).Info("serving")
	return nil
}

// setSource notes the source of the Corefile in use, and writes the cluster's to Cache.
func (r *running) setSource(source string) {
	if source == fromCluster {
		if _, err := atomicfile.WriteIfChanged(r.Cache, []byte(r.corefile), 0o600); err != nil {
			r.log.WithError(err).Warn("writing the Corefile for starts without an API server")
		}
	}
	if source != r.report.Source {
		r.setReport(func(s *clusterdns.Status) { s.Source = source })
	}
}

// reject logs and reports an error of the cluster's Corefile, and writes an event.
func (r *running) reject(ctx context.Context, err error) {
	if r.report.Error == err.Error() {
		return // reported before
	}
	r.log.WithError(err).Warn("not using the Corefile of ConfigMap kube-system/coredns")
	r.setReport(func(s *clusterdns.Status) { s.Error = err.Error() })
	r.event(ctx, err)
}

func (r *running) setReport(change func(*clusterdns.Status)) {
	change(&r.report)
	if r.Report != nil {
		r.Report(r.report)
	}
}

// ownAddresses are the addresses that lead to this name server.
func (r *running) ownAddresses() []netip.Addr {
	out := append([]netip.Addr{}, r.ServiceIPs...)
	for _, l := range r.listen {
		out = append(out, l.Addr())
	}
	return out
}
