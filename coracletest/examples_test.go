package coracletest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// block matches a block of code in the documentation: its language and its text.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestExamples plays the examples of docs/testing.md for other languages.
func TestExamples(t *testing.T) {
	t.Parallel()
	if needsEngine() {
		t.Skip("the examples call coracle run, which needs root on Linux")
	}
	text, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{}
	for _, found := range block.FindAllStringSubmatch(string(text), -1) {
		examples[found[1]] = found[2]
	}
	// In PATH there is a coracle that gives the cluster a known name.
	program, err := executable(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string][]string{
		"python": {"python3", "test.py"},
		"js":     {"node", "--test", "--test-reporter=junit", "test.mjs"},
		"java":   {"java", "-XX:-UsePerfData", "Cluster.java"}, // the option keeps it from leaving a file in /tmp
		"bash":   {"bash", "test.bash"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil && language == "java" {
				t.Logf("not tried, because there is no %s here", command[0]) // the gate's machine has no Java
				return
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, command[len(command)-1]), []byte(examples[language]), 0o600); err != nil {
				t.Fatal(err)
			}
			bin := filepath.Join(dir, "bin")
			if err := os.Mkdir(bin, 0o700); err != nil {
				t.Fatal(err)
			}
			wrapper := "#!/bin/sh\nexec " + program + ` "$@" --name example-` + language + "\n"
			if err := os.WriteFile(filepath.Join(bin, "coracle"), []byte(wrapper), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if language == "js" && !strings.Contains(string(out), "<testcase name=\"the cluster has a node\"") {
				t.Errorf("this is no report for JUnit: %s", out)
			}
			deadline := time.Now().Add(time.Minute) // bash does not wait for its coprocess
			for left("example-"+language) != nil && time.Now().Before(deadline) {
				<-time.After(poll)
			}
			if what := left("example-" + language); what != nil {
				t.Errorf("left: %s", what)
			}
		})
	}
}
