package vm

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
)

// tpmSteps are tried on a machine whose TPM seals the passphrase with which the keys of Secrets are sealed: systemd has it opened for the service, and
// coracle reads it as a file.
func tpmSteps() []step {
	return []step{
		{"boot", (*story).boot, false},
		{"install.sh", (*story).installSealed, false},
		{"reboot", (*story).sealedReboot, false},
		{"the disk in another machine", (*story).stolenDisk, false},
		{"the disk in its own machine", (*story).sealedReboot, false},
	}
}

// sealPassphrase is what docs/security.md says.
const sealPassphrase = `mkdir -p /etc/coracle /etc/systemd/system/coracle.service.d
head -c 24 /dev/urandom | base64 >/run/passphrase
systemd-creds encrypt --with-key=tpm2 --name=coracle-passphrase /run/passphrase /etc/coracle/passphrase.cred
printf '[Service]\nLoadCredentialEncrypted=coracle-passphrase:/etc/coracle/passphrase.cred\n' >/etc/systemd/system/coracle.service.d/passphrase.conf
echo 'secrets-encryption-passphrase-file: /run/credentials/coracle.service/coracle-passphrase' >/etc/coracle/config.yaml`

func (s *story) installSealed(t *testing.T) {
	s.m.Sh(sealPassphrase)
	s.m.Sh("rm /run/passphrase")
	s.install(t)
	s.m.Sh("kubectl create secret generic treasure --from-literal=word=hidden")
	s.sealed(t)
}

// sealed looks whether Secrets can be read, and need the passphrase.
func (s *story) sealed(t *testing.T) {
	t.Helper()
	if out := s.m.Sh("kubectl get secret treasure -o jsonpath={.data.word} | base64 -d"); out != "hidden" {
		t.Errorf("the Secret is %q", out)
	}
	if out := s.m.Run("coracle", "secrets-encrypt", "status"); !strings.Contains(out, "Keys Sealed With: cluster CA, passphrase") {
		t.Error(out)
	}
}

func (s *story) sealedReboot(t *testing.T) {
	s.m.Off(s.m.Within(readyWithin))
	s.m.TPM = s.opts.TPM
	s.m.Boot()
	s.ready(t)
	s.sealed(t)
}

// stolenDisk boots the machine's disk with another TPM: neither the service starts, nor, when it is told to do without a passphrase, the control plane.
func (s *story) stolenDisk(t *testing.T) {
	s.m.Off(s.m.Within(readyWithin))
	s.m.TPM = "another"
	s.m.Boot()
	says := func(want string) {
		t.Helper()
		hosts.Eventually(t, s.m.Within(readyWithin), func() error {
			_, err := s.m.TrySh(`journalctl --boot --no-pager --output=cat | grep -F "$1"`, want)
			return err
		})
		if out, err := s.m.TrySh("kubectl get secret treasure --request-timeout=5s"); err == nil {
			t.Errorf("the Secret can be read: %s", out)
		}
	}
	says("Failed to set up credentials")
	s.m.Sh(`mv /etc/systemd/system/coracle.service.d/passphrase.conf /root/
mv /etc/coracle/config.yaml /root/
systemctl daemon-reload; systemctl restart --no-block coracle`)
	says("the cluster's encryption keys are sealed with a passphrase")
	s.m.Sh(`systemctl stop coracle
mv /root/passphrase.conf /etc/systemd/system/coracle.service.d/
mv /root/config.yaml /etc/coracle/
systemctl daemon-reload`)
}
