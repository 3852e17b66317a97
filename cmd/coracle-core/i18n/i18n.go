// Package i18n keeps processes from loading kubectl's translations in vain, which takes each 2 MB of memory and 20 ms: kubectl's packages translate their
// texts when they are initialized, also in other programs, and for English, where each text is its own translation. It is initialized before them, because it imports nothing that does and the order is that of
// import paths; see SetLoadTranslationsFunc.
package i18n

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

// Err is the error of a program that was put together so that the translations were loaded before.
var Err = i18n.SetLoadTranslationsFunc(func() error {
	if !isKubectl(os.Args) || isEnglish(os.Getenv) {
		return nil
	}
	return i18n.LoadTranslations("kubectl", nil)
})

// isKubectl reports whether a program with these arguments is kubectl, by its name or its first argument, or completes its arguments.
func isKubectl(args []string) bool {
	return slices.ContainsFunc(args[:min(3, len(args))], func(arg string) bool { return filepath.Base(arg) == "kubectl" })
}

// isEnglish reports whether kubectl speaks English in an environment. Where it has no translation, it loads the English one.
func isEnglish(getenv func(string) string) bool {
	language := cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG"))
	return language == "" || language == "C" || language == "POSIX" || strings.HasPrefix(language, "C.") || strings.HasPrefix(language, "en_")
}
