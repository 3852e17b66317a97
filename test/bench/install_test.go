package bench

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/mirror"
)

// measureInstall runs install.sh on new machines with systemd, with a signed local file, and uninstalls coracle.
func measureInstall(t *testing.T, runs int, r *results) {
	t.Run("install", func(t *testing.T) {
		site := machines.Open(t)
		script, err := os.ReadFile("../../install.sh")
		if err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(hosts.Bin(t))
		if err != nil {
			t.Fatal(err)
		}
		key, file := mirror.New(t), release.Asset(runtime.GOARCH)
		sums := fmt.Sprintf("%x  %s\n", sha256.Sum256(program), file)
		for i := range runs {
			m := site.Boot(t, fmt.Sprint("installed", i), machines.Options{})
			m.Write("/root/install.sh", string(script))
			m.Write("/root/release.pub", key.Key)
			m.Write("/root/"+release.SumsFile, sums)
			m.Write("/root/"+release.SignatureFile, key.Signature(t, sums))
			m.Run("cp", machines.Bin, "/root/"+file)
			began := time.Now()
			m.Sh("cd /root && INSTALL_CORACLE_KEY=release.pub INSTALL_CORACLE_FILE=" + file + " sh install.sh")
			r.add("install.sh with a signed local file: node Ready", "s", 8, time.Since(began).Seconds())
			began = time.Now()
			m.Run("coracle", "uninstall", "--yes")
			r.add("uninstall", "s", 0, time.Since(began).Seconds())
		}
	})
}
