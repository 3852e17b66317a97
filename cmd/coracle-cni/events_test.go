package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

// listener is a node that writes down what it is told.
type listener struct {
	socket string
	told   []cnievents.Event
	refuse error // of pods that come
	order  *[]string
}

func listen(t *testing.T, order *[]string) *listener {
	t.Helper()
	l := &listener{socket: filepath.Join(t.TempDir(), "s"), order: order}
	socket, err := net.Listen("unix", l.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go cnievents.Serve(t.Context(), socket, func(_ context.Context, n cnievents.Event) error {
		l.told = append(l.told, n)
		*l.order = append(*l.order, string(n.Verb))
		if n.Verb == cnievents.Add {
			return l.refuse
		}
		return nil
	})
	return l
}

// attached is a result of the bridge plugin.
const attached = `{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"0a:58:0a:2a:03:01"},{"name":"veth1","mac":"2e:00:00:00:00:01"},` +
	`{"name":"eth0","mac":"0a:58:0a:2a:03:02","sandbox":"/run/netns/n1"}],"ips":[{"interface":2,"address":"10.42.3.2/24","gateway":"10.42.3.1"}]}`

// TestNotices: policies are in force before a pod has a link, and its address is free only when that has been told.
func TestNotices(t *testing.T) {
	var order []string
	l := listen(t, &order)
	conf := strings.NewReplacer("/run/coracle/subnet.json", write(t, goodSubnet), "/var/lib/coracle/node/cni", t.TempDir(),
		`"bridge":"cni0"`, `"bridge":"cni0","policySocket":"`+l.socket+`"`).Replace(goodConf)
	c, err := parseConf([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	var stuck error
	p := plugin{bridge: skel.CNIFuncs{
		Add: func(*skel.CmdArgs) error { order = append(order, "link"); fmt.Println(attached); return nil },
		Del: func(*skel.CmdArgs) error { order = append(order, "unlink"); return nil },
	}, port: func(bridge, port string) error {
		order = append(order, "port "+port+" at "+bridge)
		return stuck
	}, quiet: func(string, string) {}, guard: func(p portguard.Port) error {
		order = append(order, fmt.Sprint("guard ", p.Name, " ", p.MAC, " ", p.IPs))
		return nil
	}, unguard: func(p portguard.Port) error {
		order = append(order, "unguard "+p.Name)
		return nil
	}, tidy: func() error {
		order = append(order, "tidy")
		return nil
	}}
	args := &skel.CmdArgs{ContainerID: "s1", IfName: "eth0", Netns: "n1", StdinData: []byte(conf),
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=front;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u1"}
	if out, err := printed(func() error { return p.add(args) }); err != nil || string(out) != attached+"\n" {
		t.Fatalf("%v; printed is %q", err, out)
	}
	if n := l.told[0]; n.Sandbox != "s1" || n.Namespace != "web" || n.Name != "front" || n.UID != "u1" || len(n.IPs) != 1 || n.IPs[0].String() != "10.42.3.2" {
		t.Errorf("told %+v", n)
	}
	args.StdinData = []byte(strings.Replace(conf, `"bridge"`, `"prevResult":`+attached+`,"bridge"`, 1))
	if err := p.del(args); err != nil {
		t.Fatal(err)
	}
	args.StdinData = []byte(conf)
	if got := strings.Join(order, " "); got != "add link guard veth1 0a:58:0a:2a:03:02 [10.42.3.2] port veth1 at cni0 unlink unguard veth1 del" {
		t.Errorf("the order was %s", got)
	}
	order = nil
	args.StdinData = []byte(strings.Replace(conf, `"bridge"`, `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"coracle.io/allow-spoofing":"true"}},"bridge"`, 1))
	if _, err := printed(func() error { return p.add(args) }); err != nil || strings.Contains(strings.Join(order, " "), "guard") {
		t.Errorf("a pod that is exempt: %v, %v", err, order)
	}
	if err := p.del(args); err != nil {
		t.Fatal(err)
	}
	args.StdinData = []byte(conf)
	stuck, order = errors.New("no such port"), nil
	if out, err := printed(func() error { return p.add(args) }); !errors.Is(err, stuck) || len(out) > 0 {
		t.Errorf("a pod came with a port that was not prepared: %v; printed is %q", err, out)
	}
	if got := strings.Join(order, " "); !strings.HasSuffix(got, "unlink tidy del") {
		t.Errorf("after a failure the order was %s", got)
	}
	stuck = nil
	l.refuse = errors.New("nft is out of order")
	if err := p.add(args); err == nil || !strings.Contains(err.Error(), "putting network policies in force: nft is out of order") {
		t.Errorf("got %v", err)
	}
	if left := held(t, c.leases()); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
	c.ValidAttachments = []types.GCAttachment{{ContainerID: "s7", IfName: "eth0"}}
	c.sendKeep()
	if last := l.told[len(l.told)-1]; last.Verb != cnievents.Keep || len(last.Sandboxes) != 1 || last.Sandboxes[0] != "s7" {
		t.Errorf("told %+v", last)
	}
	args.StdinData = []byte(strings.Replace(conf, l.socket, l.socket+"-gone", 1))
	if err := p.add(args); err == nil || !strings.Contains(err.Error(), "is coracle running?") {
		t.Errorf("a pod came without anybody to put policies in force: %v", err)
	}
	if err := p.del(args); err != nil {
		t.Errorf("a pod cannot go: %v", err)
	}
}
