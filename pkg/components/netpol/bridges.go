package netpol

import (
	"bytes"
	"os"
	"path/filepath"
)

// bridges is the directory of the kernel's settings for packets between ports of a bridge, as those between pods of one
// node. With them, such packets pass the hooks of IP; other programs sometimes switch that off.
type bridges struct{ dir string }

// enable switches it on where it is off. It returns what is wrong, for people.
func (b bridges) enable() string {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		file := filepath.Join(b.dir, name)
		data, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(bytes.TrimSpace(data), []byte("0")) {
			continue
		}
		if err == nil {
			err = os.WriteFile(file, []byte("1\n"), 0o644)
		}
		if err != nil {
			return "policies are not in force between pods of this node: net.bridge." + name + " cannot be set to 1 (" + err.Error() + "); load br_netfilter"
		}
		log().Warnf("somebody had set net.bridge.%s to 0, which lets packets between pods of this node past network policies; it is 1 again", name)
	}
	return ""
}
