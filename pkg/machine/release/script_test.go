package release_test

import (
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/machine/release"
)

func TestPublicKeyIsInstallScripts(t *testing.T) {
	script, err := os.ReadFile("../../../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), release.PublicKey) {
		t.Error("install.sh does not have PublicKey's text")
	}
}
