package apiserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/kubernetes/plugin/pkg/admission/eventratelimit"
	podsecurityconfig "k8s.io/pod-security-admission/admission/api/load"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// TestAdmissionConfig: upstream reads the generated file, with the user's settings in it, and finds the levels.
func TestAdmissionConfig(t *testing.T) {
	cis := config.Security{Profile: config.ProfileCIS, PodSecurity: config.PodRestricted}
	for _, one := range []struct {
		name     string
		security config.Security
		theirs   string
		levels   []string // enforce, warn; none for no file of coracle's
		plugins  []string
	}{
		{"before", config.Security{PodSecurity: config.PodPrivileged}, "", nil, nil},
		{"before, with the user's", config.Security{PodSecurity: config.PodPrivileged}, "plugins: []\n", nil, nil},
		{"before, with a level", config.Security{PodSecurity: config.PodBaseline}, "", []string{"baseline", "baseline"}, []string{"PodSecurity"}},
		{"new", config.Security{Hardened: true, PodSecurity: config.PodPrivileged}, "", []string{"privileged", "baseline"}, []string{"PodSecurity"}},
		{"cis", cis, "", []string{"restricted", "restricted"}, []string{"EventRateLimit", "PodSecurity"}},
		{"cis, with the user's", cis, "plugins:\n- name: ImagePolicyWebhook\n  path: images.yaml\n- name: PodSecurity\n  path: levels.yaml\n",
			[]string{"baseline", "privileged"}, []string{"EventRateLimit", "ImagePolicyWebhook", "PodSecurity"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			a, dir := plain(), t.TempDir()
			a.Security, a.Files.Admission = one.security, filepath.Join(dir, "generated.yaml")
			if one.theirs != "" {
				theirs := filepath.Join(dir, "theirs", "admission.yaml")
				if a.API.AdmissionConfig = theirs; one.levels != nil { // the way of upstream's own flag
					a.API.AdmissionConfig, a.Args = "", []string{"admission-control-config-file=" + theirs}
				}
				write(t, theirs, "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+one.theirs)
				write(t, filepath.Join(dir, "theirs", "images.yaml"), "imagePolicy: {}\n")
				write(t, filepath.Join(dir, "theirs", "levels.yaml"), "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline}\n")
			}
			if err := a.writeAdmission(); err != nil {
				t.Fatal(err)
			}
			if flags := a.flags(); one.levels != nil && !slices.Contains(flags, [2]string{"admission-control-config-file", a.Files.Admission}) {
				t.Errorf("the flags are %v", flags)
			}
			if one.levels == nil {
				if a.admissionFile() != a.API.AdmissionConfig {
					t.Errorf("the file is %q", a.admissionFile())
				}
				return
			}
			scheme := runtime.NewScheme()
			install.Install(scheme)
			from, err := admission.ReadAdmissionConfiguration(one.plugins, a.admissionFile(), scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range one.plugins {
				if r, err := from.ConfigFor(name); err != nil || r == nil {
					t.Errorf("%s has no settings: %v", name, err)
				}
			}
			r, err := from.ConfigFor("PodSecurity")
			if err != nil {
				t.Fatal(err)
			}
			levels, err := podsecurityconfig.LoadFromReader(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := []string{levels.Defaults.Enforce, levels.Defaults.Warn}; !slices.Equal(got, one.levels) {
				t.Errorf("the levels are %v", got)
			}
			if !slices.Contains(one.plugins, "EventRateLimit") {
				return
			}
			if r, err = from.ConfigFor("EventRateLimit"); err != nil {
				t.Fatal(err)
			}
			plugins := admission.NewPlugins()
			eventratelimit.Register(plugins)
			if _, err := plugins.InitPlugin("EventRateLimit", r, admission.PluginInitializers{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBrokenAdmissionConfig(t *testing.T) {
	a := plain()
	a.Security.Hardened, a.API.AdmissionConfig = true, filepath.Join(t.TempDir(), "mine.yaml")
	for text, want := range map[string]string{"plugins: [": "yaml", "kind: Pod\napiVersion: v1\n": `of kind "Pod" in "v1"`, "": "of kind"} {
		write(t, a.API.AdmissionConfig, text)
		if err := a.writeAdmission(); err == nil || !strings.Contains(err.Error(), a.API.AdmissionConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
