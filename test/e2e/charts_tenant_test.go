package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// landlord makes namespace tenant, whose account deployer may change what is in the namespace.
const landlord = `apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: tenant}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: deployer, namespace: tenant}]
`

// theft makes the tenant an administrator.
const theft = `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "stolen-%s"}, ` +
	`"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": "tenant"}]}`

// tenant is what somebody can do who may write HelmCharts and Secrets in namespace tenant.
type tenant struct {
	*testing.T
	h     *hosts.Host
	chart string // the field with a chart that consists of the value "objects"
}

// apply writes a HelmChart whose release has these objects; account is the line with the account, or "".
func (n tenant) apply(name, account, objects string) {
	n.Helper()
	text := helmChart(name, n.chart, "values: {objects: "+fmt.Sprintf("%q", objects)+"}", account)
	n.h.Apply(strings.Replace(text, "namespace: default", "namespace: tenant", 1))
}

func (n tenant) kubectl(args ...string) string {
	n.Helper()
	return n.h.Kubectl(append([]string{"-n", "tenant"}, args...)...)
}

// comesTo waits until a chart's condition Ready has the reason and the words. Nobody may have become an administrator.
func (n tenant) comesTo(name, why, words string) {
	n.Helper()
	hosts.Eventually(n, time.Minute, func() error {
		const ready = `.status.conditions[?(@.type=="Ready")]`
		got := n.kubectl("get", "helmchart/"+name, "-o", "jsonpath={"+ready+".reason}: {"+ready+".message}")
		return errors.Join(contains("condition Ready", got, why+": "), contains("condition Ready", got, words))
	})
	if got := n.h.Kubectl("get", "clusterrolebindings", "-o", "name"); strings.Contains(got, "stolen") {
		n.Errorf("chart %s that is %s has made %s", name, why, got)
	}
}

// falsify changes a revision, with the permissions of somebody who may write Secrets.
func (n tenant) falsify(revision string, change func(map[string]any)) {
	n.Helper()
	decode := func(text string) []byte {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			n.Fatal(err)
		}
		return data
	}
	packed, err := gzip.NewReader(bytes.NewReader(decode(string(decode(n.kubectl("get", "secret", revision, "-o", "jsonpath={.data.release}"))))))
	if err != nil {
		n.Fatal(err)
	}
	var release map[string]any
	if err := json.NewDecoder(packed).Decode(&release); err != nil {
		n.Fatal(err)
	}
	change(release)
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(release); err != nil || w.Close() != nil {
		n.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(out.Bytes())))
	n.kubectl("--as=system:serviceaccount:tenant:deployer", "patch", "secret", revision, "--type=merge", "--patch", `{"data":{"release":"`+text+`"}}`)
}

// testChartTenant: a tenant's chart can do what its account can, however it, its release or its account is changed.
func testChartTenant(t *testing.T, h *hosts.Host) {
	const account, good = "serviceAccountName: deployer", "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}"
	steal := func(name string) string { return fmt.Sprintf(theft, name) }
	n := tenant{t, h, inline(t, map[string]string{
		"Chart.yaml": chartFiles(t, "1.0.0")["Chart.yaml"], "templates/all.yaml": "{{ tpl .Values.objects . }}\n",
	})}
	h.Apply(landlord)
	n.apply("mine", "", steal("without"))
	n.comesTo("mine", "NoServiceAccount", "needs spec.serviceAccountName")
	expect(t, "needs spec.serviceAccountName", func() (string, error) {
		return h.TryCoracle("kubectl", "-n", "tenant", "get", "events", "--field-selector=reason=NoServiceAccount", "-o", "jsonpath={.items[*].message}")
	})
	n.apply("mine", account, good)
	n.comesTo("mine", "Deployed", "revision 1")
	n.apply("mine", account, steal("installed"))
	n.comesTo("mine", "ReleaseFailed", "cannot get resource")
	n.apply("mine", account, `{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}, data: {all: '{{ lookup "v1" "Secret" "kube-system" "" | toJson }}'}}`)
	n.comesTo("mine", "ReleaseFailed", "cannot list resource")
	n.falsify("sh.helm.release.v1.mine.v1", func(r map[string]any) { r["manifest"] = r["manifest"].(string) + "\n---\n" + steal("restored") })
	n.apply("mine", account, "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, labels: {refused: 'no label'}}}")
	n.comesTo("mine", "ReleaseFailed", "rolling back to revision 1")
	n.apply("mine", "", good)
	n.comesTo("mine", "NoServiceAccount", "needs spec.serviceAccountName")

	n.apply("gone", account, good[:len(good)-2]+"-too}}")
	n.comesTo("gone", "Deployed", "revision 1")
	n.falsify("sh.helm.release.v1.gone.v1", func(r map[string]any) {
		r["hooks"] = []any{map[string]any{"name": "stolen", "kind": "ClusterRoleBinding", "path": "web/templates/all.yaml", "manifest": steal("deleted"), "events": []string{"pre-delete"}}}
	})
	n.kubectl("delete", "helmchart", "gone", "--wait=false")
	n.comesTo("gone", "NotRemoved", "forbidden")
	h.Kubectl("delete", "namespace", "tenant", "--timeout=2m") // its charts must not hold it when their accounts are gone
}
