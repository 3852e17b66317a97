// Package i18n keeps processes that are not kubectl from loading its translations, which takes each 2 MB of memory: kubectl's packages
// translate their texts when they are initialized. It is initialized before them, because it imports nothing that does and the order is that of
// import paths; see SetLoadTranslationsFunc.
package i18n

import (
	"os"
	"path/filepath"
	"slices"

	"k8s.io/kubectl/pkg/util/i18n"
)

// Err is the error of a program that was put together so that the translations were loaded before.
var Err = i18n.SetLoadTranslationsFunc(func() error {
	if !isKubectl(os.Args) {
		return nil
	}
	return i18n.LoadTranslations("kubectl", nil)
})

// isKubectl reports whether a program with these arguments is kubectl, by its name or its first argument, or completes its arguments.
func isKubectl(args []string) bool {
	return slices.ContainsFunc(args[:min(3, len(args))], func(arg string) bool { return filepath.Base(arg) == "kubectl" })
}
