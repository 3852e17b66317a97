package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

func (d *Doctor) kubelet(context.Context) []check.Verdict {
	port := 10248
	for _, arg := range d.Config.Args["kubelet"] {
		if value, ok := strings.CutPrefix(arg, "healthz-port="); ok {
			port, _ = strconv.Atoi(value)
		}
	}
	if port == 0 {
		return check.Skipf("its health check is disabled")
	}
	client := &http.Client{Timeout: apiTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	var response *http.Response
	var err error
	for _, loopback := range []string{"127.0.0.1", "::1"} { // the kubelet of an IPv6-only node listens on the second
		if response, err = client.Get("http://" + net.JoinHostPort(loopback, strconv.Itoa(port)) + "/healthz"); err == nil {
			break
		}
	}
	if err != nil {
		return check.Failf("check processes and check components; coracle logs --component kubelet", "the kubelet does not answer: %s", short(err))
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12)) // the status is enough
	if response.StatusCode != http.StatusOK {
		return check.Failf("coracle logs --component kubelet", "the kubelet is not healthy: %s", strings.TrimSpace(string(body)))
	}
	return check.Okf("it is healthy")
}

// containerdTimeout is the time limit of one request.
const containerdTimeout = 3 * time.Second

func (d *Doctor) dialContainerd() (*containerd.Client, error) {
	socket := d.Config.Dirs.ContainerdSocket()
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	conn.Close()
	return containerd.New(socket, containerd.WithTimeout(containerdTimeout), containerd.WithDefaultNamespace("k8s.io"))
}

func (d *Doctor) runtime(ctx context.Context) []check.Verdict {
	const fix = "check processes and check components; coracle logs --component containerd"
	ctx, cancel := context.WithTimeout(ctx, containerdTimeout)
	defer cancel()
	client, err := d.dialContainerd()
	if err != nil {
		return check.Failf(fix, "containerd does not run: %v", err)
	}
	defer client.Close()
	v, err := client.Version(ctx)
	if err != nil {
		return check.Failf(fix, "containerd does not answer: %v", err)
	}
	plugins, err := client.IntrospectionService().Plugins(ctx)
	if err != nil {
		return check.Failf(fix, "containerd does not list its plugins: %v", err)
	}
	for _, p := range plugins.Plugins {
		if p.InitErr != nil && p.Type == "io.containerd.cri.v1" {
			return check.Failf(fix, "containerd's plugin %s does not work: %s", p.ID, p.InitErr.Message)
		}
	}
	pods, err := client.Containers(ctx)
	if err != nil {
		return check.Warnf(fix, "containerd does not list containers: %v", err)
	}
	return check.Okf("containerd %s, %d containers and sandboxes", v.Version, len(pods))
}

// images checks that the images that are not in any registry are complete.
func (d *Doctor) images(ctx context.Context) []check.Verdict {
	client, err := d.dialContainerd()
	if err != nil {
		return check.Skipf("containerd does not run, see check container-runtime")
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, "k8s.io"), 2*containerdTimeout)
	defer cancel()
	var out []check.Verdict
	if _, err := client.GetImage(ctx, version.PauseImage); errdefs.IsNotFound(err) {
		out = append(out, check.Failf("restart coracle, which imports it again", "the image %s is missing: no pod can start", version.PauseImage)...)
	}
	all, err := client.ListImages(ctx, `labels."io.cri-containerd.pinned"==pinned`)
	if err != nil {
		return append(out, check.Failf("coracle logs --component containerd", "the images cannot be listed: %v", err)...)
	}
	broken := map[string]bool{}
	for _, img := range all {
		missing := incomplete(ctx, client, img)
		if digest := img.Target().Digest.String(); missing != "" && !broken[digest] {
			broken[digest] = true
			out = append(out, check.Failf("import it again: coracle images import FILE; a restart of coracle imports its own images",
				"the image %s is not complete: %s", img.Name(), missing)...)
		}
	}
	return check.Else(first(out, 10), check.Okf("%s exists; %d names of pinned images, all complete", version.PauseImage, len(all)))
}

// incomplete returns what is missing of an image, "" if it is complete.
func incomplete(ctx context.Context, client *containerd.Client, img containerd.Image) string {
	available, _, _, missing, err := images.Check(ctx, client.ContentStore(), img.Target(), img.Platform())
	switch {
	case err != nil:
		return err.Error()
	case !available:
		return "its manifest is missing"
	case len(missing) > 0:
		return fmt.Sprintf("%d of its parts are missing, as %s", len(missing), missing[0].Digest)
	}
	return ""
}
