package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// admin is the administrator's access to the cluster, on a server.
type admin struct {
	client kubernetes.Interface
	pin    string // pin of the cluster's CA, for tokens
}

// administer returns the administrator's access to the cluster of this server.
func (i installation) administer() (admin, error) {
	none := admin{}
	file, ca, err := i.adminAccess()
	if err != nil {
		return none, err
	}
	pin, err := pki.CAPin(ca)
	if err != nil {
		return none, err
	}
	client, err := adminClient(file)
	return admin{client, pin}, err
}

// adminAccess returns the administrator's kubeconfig of this server, and the CA certificate in it.
func (i installation) adminAccess() (file string, ca []byte, err error) {
	file = i.kubeconfig()
	access, err := clientcmd.BuildConfigFromFlags("", file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && i.config.Role == config.Agent:
		return "", nil, errors.New("this machine is an agent, and the cluster is managed on its servers: run this there")
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, fmt.Errorf("there is no %s: run this on a server of the cluster, where coracle server has written it", file)
	case errors.Is(err, fs.ErrPermission):
		return "", nil, fmt.Errorf("%s may only be read by root: use sudo", file)
	case err != nil:
		return "", nil, fmt.Errorf("reading %s: %w", file, err)
	}
	ca = access.CAData
	if len(ca) == 0 {
		ca, err = os.ReadFile(access.CAFile)
	}
	return file, ca, err
}

// adminClient returns a client of the API for a kubeconfig.
func adminClient(file string) (kubernetes.Interface, error) {
	access, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	access.QPS = -1
	access.Timeout = 30 * time.Second
	return kubernetes.NewForConfig(access)
}

// explain adds to frequent errors of the API what to do about them.
func explain(err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return exitcode.With(exitcode.Unreachable, fmt.Errorf("the API does not answer (%v): start it with coracle server, and see coracle status", op))
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return exitcode.With(exitcode.Unreachable, fmt.Errorf("%w; this needs an administrator's kubeconfig", err))
	}
	return err
}
