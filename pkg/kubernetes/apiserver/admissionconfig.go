package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// cisPlugins are the admission plugins of the CIS profile, beside those that are on in any case.
func cisPlugins() []string {
	return []string{"AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit"}
}

// plugins returns the admission plugins that are on beside upstream's default ones.
func (a APIServer) plugins() []string {
	out := append([]string{"NodeRestriction"}, a.API.EnableAdmission...)
	if !a.Security.CIS() {
		return out
	}
	for _, p := range cisPlugins() {
		if !slices.Contains(out, p) && !slices.Contains(a.API.DisableAdmission, p) {
			out = append(out, p)
		}
	}
	return out
}

// admissionFile is the configuration of admission plugins: the generated one, with the user's in it, or the user's if coracle configures none.
func (a APIServer) admissionFile() string {
	if len(a.pluginSettings()) > 0 {
		return a.Files.Admission
	}
	return a.userAdmission()
}

// userAdmission is the user's configuration of admission plugins, "" for none.
func (a APIServer) userAdmission() string {
	for _, flag := range kube.Flags(nil).Override(a.Args) {
		if flag[0] == admissionFlag {
			return flag[1]
		}
	}
	return a.API.AdmissionConfig
}

const admissionFlag = "admission-control-config-file"

type pluginSetting struct {
	Name          string `json:"name"`
	Path          string `json:"path,omitempty"`
	Configuration any    `json:"configuration,omitempty"`
}

// pluginSettings returns coracle's settings of admission plugins.
func (a APIServer) pluginSettings() (all []pluginSetting) {
	level := a.Security.PodLevel()
	if a.Security.Strict() || level == config.PodBaseline || level == config.PodRestricted {
		all = append(all, pluginSetting{Name: "PodSecurity", Configuration: podSecurity(level)})
	}
	if a.Security.CIS() {
		// A controller that has gone wrong can fill etcd with Events. A busy cluster has a few hundred a second for a short time.
		limit := func(kind string, qps, burst int) map[string]any {
			return map[string]any{"type": kind, "qps": qps, "burst": burst}
		}
		all = append(all, pluginSetting{Name: "EventRateLimit", Configuration: map[string]any{
			"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration",
			"limits": []any{limit("Server", 1000, 10000), limit("Namespace", 100, 2000)},
		}})
	}
	return all
}

// podSecurity returns the settings for namespaces without labels: they enforce a level, and warn about and record what is outside of baseline at
// least. Namespace kube-system is left out, because what extends a cluster, such as drivers for volumes, runs there with privileges.
func podSecurity(enforce config.PodLevel) map[string]any {
	warn := enforce
	if warn != config.PodRestricted {
		warn = config.PodBaseline
	}
	return map[string]any{
		"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
		"defaults": map[string]any{
			"enforce": enforce, "enforce-version": "latest", "warn": warn, "warn-version": "latest", "audit": warn, "audit-version": "latest",
		},
		"exemptions": map[string]any{"namespaces": []string{"kube-system"}},
	}
}

// writeAdmission writes the configuration of admission plugins, if coracle has settings. The user's settings of a plugin replace coracle's.
func (a APIServer) writeAdmission() error {
	ours := a.pluginSettings()
	if len(ours) == 0 {
		return nil
	}
	var theirs struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Plugins    []pluginSetting `json:"plugins"`
	}
	if file := a.userAdmission(); file != "" {
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, &theirs)
		}
		if err == nil && (theirs.Kind != "AdmissionConfiguration" || !strings.HasPrefix(theirs.APIVersion, "apiserver.config.k8s.io/")) {
			err = fmt.Errorf("it is of kind %q in %q, and not AdmissionConfiguration in apiserver.config.k8s.io/v1", theirs.Kind, theirs.APIVersion)
		}
		if err != nil {
			return fmt.Errorf("reading the settings of admission plugins %s: %w", file, err)
		}
		for i, p := range theirs.Plugins {
			if p.Path != "" && !filepath.IsAbs(p.Path) { // relative to the file that names it
				theirs.Plugins[i].Path = filepath.Join(filepath.Dir(file), p.Path)
			}
		}
	}
	all := theirs.Plugins
	for _, one := range ours {
		if !slices.ContainsFunc(theirs.Plugins, func(p pluginSetting) bool { return p.Name == one.Name }) {
			all = append(all, one)
		}
	}
	data, err := yaml.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": all})
	if err == nil {
		err = atomicfile.Write(a.Files.Admission, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the settings of admission plugins: %w", err)
	}
	return nil
}
