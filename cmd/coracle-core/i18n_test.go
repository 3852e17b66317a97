package main

import (
	"testing"

	"github.com/coracle-dev/coracle/cmd/coracle-core/i18n"
)

// TestTranslationsAreLate: no package of kubectl is initialized before i18n is.
func TestTranslationsAreLate(t *testing.T) {
	if i18n.Err != nil {
		t.Error(i18n.Err)
	}
}
