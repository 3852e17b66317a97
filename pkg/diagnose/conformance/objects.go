package conformance

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names of what is made in the cluster.
const (
	namespace = "conformance"
	podName   = "e2e-conformance-test"
	account   = "conformance"
	binding   = "coracle-conformance"
	tests     = "tests"   // the container that runs them
	keeper    = "results" // the container that keeps their files until they are fetched
	made      = "namespace " + namespace + " and ClusterRoleBinding " + binding

	label = "app.kubernetes.io/managed-by"
	owner = "coracle-conformance"

	volume     = "results"
	resultsDir = "/tmp/results" // the image's default
)

// Times of the pod: the tests have a day, as upstream's runner gives them, and a minute to tidy up when they are interrupted.
const (
	longest = 25 * time.Hour
	grace   = time.Minute
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{label: owner}}
}

// makeNamespace makes the namespace, whose existence is the lock of a run.
func (r *Runner) makeNamespace(ctx context.Context) error {
	whole := context.WithoutCancel(ctx) // an interrupt must not leave open whether it is made
	ns, err := r.api.CoreV1().Namespaces().Create(whole, &corev1.Namespace{ObjectMeta: meta(namespace)}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return r.occupied(ctx)
	}
	if err != nil {
		return fmt.Errorf("making namespace %s: %w", namespace, err)
	}
	r.namespaceUID = ns.UID
	return nil
}

// occupied says what the namespace that exists already is.
func (r *Runner) occupied(ctx context.Context) error {
	ns, err := r.api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("looking at namespace %s: %w", namespace, err)
	}
	since := ns.CreationTimestamp.UTC().Format(time.RFC3339)
	switch {
	case ns.Labels[label] != owner:
		return errNotOurs("namespace " + namespace)
	case ns.DeletionTimestamp != nil:
		return fmt.Errorf("a run of %s is being removed: try again in a minute", since)
	}
	pod, err := r.api.CoreV1().Pods(namespace).Get(ctx, podName, metav1.GetOptions{})
	if err == nil && pod.DeletionTimestamp == nil && terminated(pod, tests) == nil {
		return fmt.Errorf("a run is under way since %s: wait for its end, or end it with coracle conformance --cleanup", since)
	}
	return fmt.Errorf("a run of %s was not removed: coracle conformance --cleanup does that", since)
}

func errNotOurs(what string) error {
	return fmt.Errorf("%s is there already, and coracle conformance has not made it: remove it if nobody needs it", what)
}

// makePod makes the account, its rights and the pod.
func (r *Runner) makePod(ctx context.Context) error {
	if _, err := r.api.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(account)}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the tests' ServiceAccount: %w", err)
	}
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta(binding),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	// Who removes the namespace by hand removes the rights with it.
	rights.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: r.namespaceUID}}
	rights, err := r.api.RbacV1().ClusterRoleBindings().Create(context.WithoutCancel(ctx), rights, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ClusterRoleBinding %s is there already: coracle conformance --cleanup removes it if a former run has left it", binding)
	}
	if err != nil {
		return fmt.Errorf("giving the tests their rights: %w", err)
	}
	r.bindingUID = rights.UID
	pod, err := r.api.CoreV1().Pods(namespace).Create(ctx, r.pod(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making the tests' pod: %w", err)
	}
	r.podUID = pod.UID
	r.note("runs %s in %d nodes; made %s", r.Image, r.run.Nodes, made)
	return nil
}

// environment is what upstream's runner in the image understands.
func (r *Runner) environment() []corev1.EnvVar {
	ginkgo := "-v" // a line for each test: else there is no progress to see
	if r.Parallel > 1 {
		ginkgo += " --procs=" + strconv.Itoa(r.Parallel) // tests that need the cluster for themselves run one by one at the end
	}
	env := []corev1.EnvVar{
		{Name: "E2E_FOCUS", Value: r.Focus}, {Name: "E2E_SKIP", Value: r.Skip}, {Name: "E2E_PROVIDER", Value: "skeleton"},
		{Name: "E2E_PARALLEL", Value: "false"}, {Name: "E2E_EXTRA_GINKGO_ARGS", Value: ginkgo}, {Name: "RESULTS_DIR", Value: resultsDir},
	}
	if r.DryRun {
		env = append(env, corev1.EnvVar{Name: "E2E_DRYRUN", Value: "true"})
	}
	return env
}

// pod runs the tests in one container. The other one, of the same image, lives on for their files to be read.
func (r *Runner) pod() *corev1.Pod {
	secure := &corev1.SecurityContext{
		RunAsUser: ptr.To[int64](65534), RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	// The interrupt makes the tests that run remove what they have made. The container's end ends the hook, too.
	interrupt := []string{"/bin/sh", "-c", "kill -INT -1; sleep " + strconv.Itoa(int(grace.Seconds()))}
	wait := []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep " + strconv.Itoa(int(longest.Seconds())) + " & wait"}
	return &corev1.Pod{
		ObjectMeta: meta(podName),
		Spec: corev1.PodSpec{
			ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever, EnableServiceLinks: ptr.To(false),
			ActiveDeadlineSeconds: ptr.To(int64(longest.Seconds())), TerminationGracePeriodSeconds: ptr.To(int64(grace.Seconds())),
			// Some tests taint nodes. Taints that keep new pods away, as those of a node that is lost or cordoned, are not tolerated.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Containers: []corev1.Container{
				{
					Name: tests, Image: r.Image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: secure, Env: r.environment(),
					VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: resultsDir}},
					Lifecycle:    &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: interrupt}}},
				},
				{
					Name: keeper, Image: r.Image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: secure, Command: wait,
					VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: resultsDir, ReadOnly: true}},
				},
			},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}
