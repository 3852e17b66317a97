// Package vm boots virtual machines for tests: Debian with its own kernel, systemd and a disk that loses what was not flushed,
// as scripts/test-vm makes it, in qemu. Where the processor has no hardware virtualisation for them it is emulated, and everything takes 10 to 40 times as long:
// each machine measures how long, and time-outs are multiplied with that. The coracle under test is on a file system that the
// machine can read, and nothing is installed.
package vm

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// Bin is the executable under test on a machine, Next the one of the next version, Images the directory with the test images. Here those of another architecture
// are in a folder with its name, see scripts/machines.
const (
	Bin    = "/mnt/coracle/coracle"
	Next   = "/mnt/coracle/next/coracle"
	Images = "/mnt/images"
)

// Options are the properties of a machine.
type Options struct {
	Arch   string // amd64 or arm64
	Append string // more for the kernel's command line
	Memory int    // MiB
	CPUs   int    // 2 if it is not given
	Disk   int    // GiB of a second, empty disk, /dev/vdb; 0 for none
	TPM    string // the name of a TPM 2.0, whose keys last; "" for none
}

// Machine is a virtual machine that runs or is off.
type Machine struct {
	Options
	// Slower says how many times as long a loop takes on the machine as here. It is measured at the first boot.
	Slower float64
	image  string // its directory
	dir    string
	ports  map[int]int // of the machine, and those here that lead to them
	t      testing.TB
	qemu   *exec.Cmd
	ended  chan struct{} // closed when qemu has ended
	master *exec.Cmd     // the ssh connection that all commands share, since making one takes long
}

// New makes a machine with a copy of an image's disk; nothing runs yet. It is removed when the test ends; if the test fails, the
// end of its console and of coracle's journal are printed.
func New(t testing.TB, image string, opts Options) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "vm") // short, because of the names of sockets in it
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{Options: opts, image: image, dir: dir, ports: freePorts(t, ssh, api, 30090, 30091, 8091), t: t}
	t.Cleanup(m.remove)
	m.here("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", filepath.Join(image, "disk.img"), m.path("disk"))
	if opts.Disk > 0 {
		m.here("qemu-img", "create", "-q", "-f", "qcow2", m.path("second"), strconv.Itoa(opts.Disk)+"G")
	}
	return m
}

// here runs a command on this machine.
func (m *Machine) here(name string, args ...string) {
	m.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		m.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

// The machine's ports for ssh and the API server.
const ssh, api = 22, 6443

// freePorts returns a port that nobody listens on for each of the given ports.
func freePorts(t testing.TB, ports ...int) map[int]int {
	t.Helper()
	free := map[int]int{}
	for _, port := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all are found, so that they differ
		free[port] = l.Addr().(*net.TCPAddr).Port
	}
	return free
}

// Outside is where one of the machine's ports answers here.
func (m *Machine) Outside(port int) string { return "127.0.0.1:" + strconv.Itoa(m.ports[port]) }

// For is the machine for a subtest: its methods fail t. The subtest must not start the machine.
func (m *Machine) For(t testing.TB) *Machine {
	m.t = t
	return m
}

// Accelerator is how qemu runs the processor of a machine.
func (m *Machine) Accelerator() string {
	// There are machines with a /dev/kvm that only runs kernels made for it; their processors have neither flag.
	flags, _ := os.ReadFile("/proc/cpuinfo")
	if m.Arch == runtime.GOARCH && (strings.Contains(string(flags), " vmx ") || strings.Contains(string(flags), " svm ")) {
		if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
			_ = f.Close()
			return "kvm"
		}
	}
	return "tcg,thread=multi"
}

// arguments are those of qemu. Writes of the machine go to this machine's page cache when they are flushed at the latest; what
// qemu has in its own memory is lost with it, as on a disk with a cache.
func (m *Machine) arguments() []string {
	qemu, tty, cpu := []string{"qemu-system-x86_64", "-machine", "q35"}, "ttyS0", "max,-avx,-avx2" // these make emulation slow
	if m.Arch == "arm64" {
		qemu, tty, cpu = []string{"qemu-system-aarch64", "-machine", "virt,gic-version=3"}, "ttyAMA0", "cortex-a72"
	}
	accelerator := m.Accelerator()
	boot := "root=/dev/vda rw quiet panic=-1 net.ifnames=0 console=" + tty + " " + m.Append
	switch {
	case accelerator == "kvm":
		cpu = "host"
	case m.Arch == "amd64": // without it, the kernel reads the time from an emulated device, which Go programs do all the time
		boot += " tsc=reliable"
	}
	forward := ""
	for port, here := range m.ports {
		forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", here, port)
	}
	args := append([]string{"nice", "-n", "5"}, qemu...)
	args = append(args, "-accel", accelerator, "-cpu", cpu, "-smp", strconv.Itoa(cmp.Or(m.CPUs, 2)), "-m", strconv.Itoa(m.Memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none", "-serial", "file:"+m.path("console"),
		"-kernel", filepath.Join(m.image, "vmlinuz"), "-initrd", filepath.Join(m.image, "initrd.img"),
		"-append", boot,
		"-drive", "file="+m.path("disk")+",format=qcow2,if=none,id=disk,cache=writeback", "-device", "virtio-blk-pci,drive=disk",
		"-device", "virtio-rng-pci",
		"-netdev", "user,id=net,restrict=on"+forward, "-device", "virtio-net-pci,netdev=net")
	if m.Disk > 0 {
		args = append(args, "-drive", "file="+m.path("second")+",format=qcow2,if=none,id=second,cache=writeback", "-device", "virtio-blk-pci,drive=second")
	}
	if m.TPM != "" {
		args = append(args, "-chardev", "socket,id=tpm,path="+m.path("tpm"), "-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm")
	}
	for tag, dir := range map[string]string{"coracle": filepath.Dir(os.Getenv("CORACLE_BIN")), "images": os.Getenv("CORACLE_TEST_IMAGES")} {
		if m.Arch != runtime.GOARCH {
			dir = filepath.Join(dir, m.Arch)
		}
		args = append(args, "-virtfs", "local,path="+dir+",mount_tag="+tag+",security_model=none,readonly=on")
	}
	return args
}

// start starts qemu.
func (m *Machine) start() {
	m.t.Helper()
	if m.TPM != "" { // it ends with qemu
		state := m.path("tpm-" + m.TPM)
		m.here("mkdir", "-p", state)
		m.here("swtpm", "socket", "--tpm2", "--daemon", "--terminate", "--tpmstate", "dir="+state, "--ctrl", "type=unixio,path="+m.path("tpm"))
	}
	args := m.arguments()
	m.qemu = exec.Command(args[0], args[1:]...)
	log, err := os.Create(m.path("qemu"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.qemu.Stdout, m.qemu.Stderr = log, log
	release, err := nshost.StartDurably(m.qemu)
	if err != nil {
		m.t.Fatal(err)
	}
	qemu, ended := m.qemu, make(chan struct{})
	m.ended = ended
	go func() {
		_ = qemu.Wait()
		release()
		close(ended)
	}()
}

// Cut takes the machine's power: qemu is killed, and what was not flushed to its disk is lost.
func (m *Machine) Cut() {
	if m.qemu == nil {
		return
	}
	_ = m.qemu.Process.Kill()
	<-m.ended
	m.hangUp()
	m.qemu = nil
}

// Off shuts the machine down in order, and returns how long that took.
func (m *Machine) Off(limit time.Duration) time.Duration {
	m.t.Helper()
	began := time.Now()
	_, _ = m.Try("systemctl", "poweroff")
	select {
	case <-m.ended:
	case <-time.After(limit):
		m.t.Fatalf("the machine is not off after %s; its console:\n%s", limit, m.console())
	}
	m.hangUp()
	m.qemu = nil
	return time.Since(began)
}

// console is the end of what the kernel and systemd printed.
func (m *Machine) console() string {
	text, _ := os.ReadFile(m.path("console"))
	qemu, _ := os.ReadFile(m.path("qemu"))
	return string(text[max(0, len(text)-3000):]) + string(qemu)
}

func (m *Machine) remove() {
	if m.t.Failed() && m.qemu != nil {
		journal, _ := m.Try("sh", "-c", "journalctl --no-pager --lines=120 --output=short-monotonic --unit=coracle* --grep='error|warn|fail|ready|restart' -p 7; kubectl get pods,nodes -A -o wide; dmesg | tail -n 20")
		m.t.Logf("journal of the machine:\n%s\nits console:\n%s", journal, m.console())
	}
	m.Cut()
	_ = os.RemoveAll(m.dir)
}
