package coracletest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// Environment has the names of controller-runtime's envtest.Environment, so that a suite written for envtest gets a whole cluster by another import:
//
//	env := &coracletest.Environment{CRDDirectoryPaths: []string{"../config/crd/bases"}}
//	config, err := env.Start()
//	…
//	err = env.Stop()
type Environment struct {
	// Options describe the cluster further.
	Options Options

	// CRDDirectoryPaths are files or directories with definitions of custom resources. One that does not exist is left out, unless
	// ErrorIfCRDPathMissing is set.
	CRDDirectoryPaths     []string
	ErrorIfCRDPathMissing bool
	// ControlPlaneStartTimeout limits the time until the cluster can be used; 0 is Options.Wait.
	ControlPlaneStartTimeout time.Duration

	// Config, KubeConfig (its content) and Cluster are set by Start.
	Config     *rest.Config
	KubeConfig []byte
	Cluster    *Cluster
}

// Start makes the cluster and returns when it can be used.
func (e *Environment) Start() (*rest.Config, error) {
	if e.Cluster != nil {
		return nil, errors.New("the environment was started already")
	}
	o := e.Options
	for _, path := range e.CRDDirectoryPaths {
		_, err := os.Stat(path)
		switch {
		case err == nil:
			o.Manifests = append(o.Manifests[:len(o.Manifests):len(o.Manifests)], path)
		case e.ErrorIfCRDPathMissing:
			return nil, fmt.Errorf("reading definitions of custom resources: %w", err)
		}
	}
	if e.ControlPlaneStartTimeout > 0 {
		o.Wait = e.ControlPlaneStartTimeout
	}
	c, err := New(context.Background(), o)
	if err != nil {
		return nil, err
	}
	if e.KubeConfig, err = os.ReadFile(c.Kubeconfig); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	e.Cluster, e.Config = c, c.RESTConfig
	return e.Config, nil
}

// Stop removes the cluster. It does nothing if none was started.
func (e *Environment) Stop() error {
	if e.Cluster == nil {
		return nil
	}
	c := e.Cluster
	e.Cluster, e.Config, e.KubeConfig = nil, nil, nil
	return c.Stop()
}
