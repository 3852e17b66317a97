// Package cis compares this machine with the CIS Kubernetes Benchmark: the flags with which the parts of a running coracle were started, as they
// report them, and the modes and owners of files. It has all recommendations that the benchmark calls automated, and those of the others for which
// a machine can give evidence. It changes nothing, and links no Kubernetes.
package cis

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
)

// Benchmark is the version of the benchmark.
const Benchmark = "CIS Kubernetes Benchmark v1.12"

// Result sums up a finding in one word.
type Result string

// The results. Warn is for what the benchmark leaves to the administrator to judge.
const (
	Pass          Result = "pass"
	NotApplicable Result = "not-applicable"
	Warn          Result = "warn"
	Fail          Result = "fail"
)

// Finding is the result of one recommendation. Its JSON form is stable.
type Finding struct {
	ID        string `json:"id"` // in the benchmark
	About     string `json:"about"`
	Automated bool   `json:"automated"`
	Result    Result `json:"result"`
	// Evidence is what was read from the machine.
	Evidence string `json:"evidence"`
	// Reason says why something is not applicable, or passes in another form than the benchmark's.
	Reason string `json:"reason,omitempty"`
}

// Report has all findings, in the order of the benchmark.
type Report struct {
	Benchmark string         `json:"benchmark"`
	Profile   config.Profile `json:"profile"`
	Result    Result         `json:"result"` // Fail if one has failed, else Pass
	Findings  []Finding      `json:"checks"`
}

// Machine is what is compared.
type Machine struct {
	Config config.Config
	// Parts are what the upstream parts that run here were started with.
	Parts map[string]state.Settings
	// Standby are the parts that do not work here because another server leads.
	Standby map[string]bool
	// Service is the file of the service; "" if coracle was not installed as one.
	Service string
}

// Open returns the machine with the coracle that runs with the given configuration.
func Open(cfg config.Config) (*Machine, error) {
	m := &Machine{Config: cfg, Parts: map[string]state.Settings{}, Standby: map[string]bool{}}
	children := []string{state.Node}
	if cfg.Role == config.Server {
		children = append(children, state.ControlPlane)
	}
	for _, child := range children {
		parts, running, err := state.ReadSettings(cfg.Dirs, child)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("only root may see how coracle was started: use sudo (%w)", err)
		}
		if err != nil {
			return nil, err
		}
		p, _, err := state.Read(cfg.Dirs, child)
		switch {
		case err != nil:
			return nil, err
		case !running && p.Alive():
			return nil, fmt.Errorf("process %s of coracle has not reported what its parts were started with: wait until it has started; if it is of an earlier version, restart coracle", child)
		case !running:
			return nil, fmt.Errorf("process %s of coracle does not run, and what runs is checked: start coracle, and see coracle status", child)
		}
		for _, unit := range p.Units {
			m.Standby[unit.Name] = unit.State == lifecycle.Standby
		}
		maps.Copy(m.Parts, parts)
	}
	record, ok, err := install.Store{}.ByData(cfg.Dirs.Data)
	if err != nil {
		return nil, fmt.Errorf("looking for coracle's service: %w", err)
	}
	if init, err := initsystem.Detect(); ok && err == nil && paths.Exists(init.File(record.Service)) {
		m.Service = init.File(record.Service)
	}
	return m, nil
}

// Run compares the machine with all recommendations for its role.
func (m *Machine) Run() Report {
	report := Report{Benchmark: Benchmark, Profile: m.Config.Security.Profile, Result: Pass}
	rows := node()
	if m.Config.Role == config.Server {
		rows = slices.Concat(controlPlane(), node())
	}
	for _, r := range rows {
		v := r.probe(m)
		if v.result == Fail && r.kind == judged {
			v.result = Warn
		}
		if v.result == Fail {
			report.Result = Fail
		}
		report.Findings = append(report.Findings, Finding{r.id, r.about, r.kind == automated, v.result, v.evidence, v.reason})
	}
	return report
}

// kind says who decides about a recommendation.
type kind int

const (
	automated kind = iota // the benchmark has a test for it
	manual                // the benchmark leaves it to people, but there is no doubt about it here
	judged                // it depends on what the cluster is for
)

// row is a recommendation.
type row struct {
	id    string
	kind  kind
	about string
	probe probe
}

type probe func(*Machine) verdict

type verdict struct {
	result           Result
	evidence, reason string
}

// passes returns the verdict for evidence that is as it should be or not.
func passes(ok bool, evidence string) verdict {
	if ok {
		return verdict{result: Pass, evidence: evidence}
	}
	return verdict{result: Fail, evidence: evidence}
}

// because adds a reason to the verdicts of a probe that are the given result.
func because(p probe, when Result, reason string) probe {
	return func(m *Machine) verdict {
		v := p(m)
		if v.result == when {
			v.reason = reason
		}
		return v
	}
}

// absent is the verdict about a part that does not run here.
func (m *Machine) absent(part string) verdict {
	v := verdict{result: NotApplicable, evidence: part + " was not started here"}
	switch {
	case part == "kube-proxy" && m.Config.Disabled(part):
		v.reason = "it is disabled"
	case part == "etcd" && m.Config.Datastore.External():
		v.reason = "the datastore is not coracle's"
	case m.Standby[part]:
		v.reason = "it runs on the server that leads"
	default: // it should run
		v.result = Fail
	}
	return v
}

// kubelet returns a setting of the kubelet's configuration, nil if it has none.
func (m *Machine) kubelet(path ...string) any {
	var value any
	if json.Unmarshal(m.Parts["kubelet"].Config, &value) != nil {
		return nil
	}
	for _, key := range path {
		tree, _ := value.(map[string]any)
		value = tree[key]
	}
	return value
}
