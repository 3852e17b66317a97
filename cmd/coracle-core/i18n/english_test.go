package i18n

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/kubectl/pkg/util/i18n"
)

func TestIsEnglish(t *testing.T) {
	for _, c := range []struct {
		all, messages, lang string
		want                bool
	}{
		{"", "", "", true}, {"", "", "C", true}, {"C.UTF-8", "", "de_DE.UTF-8", true}, {"", "", "en_GB.UTF-8", true}, {"", "POSIX", "de_DE.UTF-8", true},
		{"", "", "de_DE.UTF-8", false}, {"", "zh_CN.UTF-8", "C", false}, {"ja_JP.UTF-8", "", "en_US.UTF-8", false}, {"", "", "Cymraeg", false},
	} {
		env := map[string]string{"LC_ALL": c.all, "LC_MESSAGES": c.messages, "LANG": c.lang}
		if got := isEnglish(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%v: %t", env, got)
		}
	}
}

// TestEnglishNeedsNoTranslation: kubectl's translations into English, and those that it has for other languages than its own, are the texts themselves.
func TestEnglishNeedsNoTranslation(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/kubectl/pkg/util/i18n").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"default", "en_US"} {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "translations/kubectl", language, "LC_MESSAGES/k8s.po"))
		if err != nil {
			t.Fatal(err)
		}
		if err := i18n.LoadTranslations("kubectl", func() string { return language }); err != nil {
			t.Fatal(err)
		}
		texts := 0
		for _, m := range message.FindAllStringSubmatch(string(data), -1) {
			text := ""
			for _, part := range quoted.FindAllString(m[1], -1) {
				part, err := strconv.Unquote(part)
				if err != nil {
					t.Fatal(err)
				}
				text += part
			}
			if text == "" {
				continue // its translation is the file's header
			}
			texts++
			if got := i18n.T(text); got != text {
				t.Errorf("%s: %q is translated as %q", language, text, got)
			}
		}
		if texts < 300 || strings.Contains(string(data), "\nmsgid_plural") { // which would depend on numbers
			t.Errorf("%s: %d texts were compared, and some may have a plural", language, texts)
		}
	}
}

var (
	message = regexp.MustCompile(`(?m)^msgid ((?:\s*"(?:[^"\\]|\\.)*"\n)+)`)
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)
