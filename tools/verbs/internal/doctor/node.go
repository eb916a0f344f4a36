package doctor

import (
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A Node is the machine and the process that checks look at. [Host] makes the one that the
// program runs on; tests make others. A function that is nil says that there is no such
// thing to ask.
type Node struct {
	// Root is the file system from / on: "sys/class/infiniband",
	// "proc/self/status", "dev/infiniband".
	Root fs.FS

	// System is the operating system, as runtime.GOOS names it, Release
	// the kernel's, as uname -r prints it, and Machine the processor's, as
	// uname -m does.
	System, Release, Machine string

	// Device is the device to look at, "" for all.
	Device string
	// Memlock is how much memory, in bytes, is wanted to be registered; 0 if
	// that was not said.
	Memlock uint64
	// Pollers is how many goroutines are wanted to poll busily; 0 if that was
	// not said.
	Pollers int
	// PID is the process to look at, 0 for this one.
	PID int

	// Netlink opens RDMA netlink.
	Netlink func() (Netlink, error)
	// Open opens a file for reading and writing and closes it again.
	Open func(path string) error
	// Stat asks for the metadata of a file, following links.
	Stat func(path string) (Stat, error)
	// Interfaces lists the network devices of this network namespace.
	Interfaces func() ([]Interface, error)
	// Query opens a device and asks it what it can do.
	Query func(device string) (*Answers, error)
	// Vectors reads which interrupts serve a device's completions, and where
	// they go.
	Vectors func(device string) (*poll.Vectors, error)
	// Coalescing asks how a network device gathers packets.
	Coalescing func(netdev string) (Coalescing, error)

	known *known    // of all checks
	notes *notebook // of one check
}

// Netlink is what checks ask of RDMA netlink.
type Netlink interface {
	Links() ([]nldev.Link, error)
	Ports(index uint32) ([]nldev.Port, error)
	Chardev(index uint32, kind string) (nldev.Chardev, error)
	System() (nldev.System, error)
	ResourceCounts(index uint32) (nldev.ResourceCounts, error)
	Counters(index, port uint32) (nldev.Counters, error)
	PDs(index uint32) ([]nldev.PD, error)
	CQs(index uint32) ([]nldev.CQ, error)
	QPs(index uint32) ([]nldev.QP, error)
	MRs(index uint32) ([]nldev.MR, error)
	SRQs(index uint32) ([]nldev.SRQ, error)
	Close() error
}

// Stat is the metadata of a file.
type Stat struct {
	Mode     fs.FileMode
	UID, GID uint32
	Rdev     uint64 // of device files
}

// Interface is a network device.
type Interface struct {
	Name  string
	Index int
	// MTU is the largest packet, in bytes, without the link's header.
	MTU int
	// Up tells whether it was set up, Running whether it has a carrier.
	Up, Running bool
	Addrs       []netip.Prefix // with the length of the network's part
}

// Answers are what an open device said of itself.
type Answers struct {
	Attr    uverbs.DeviceAttr
	Vectors int // completion vectors
	Ports   []uverbs.PortAttr
	GIDs    []uverbs.GIDEntry
}

// known is what several checks need and one finds out.
type known struct {
	devices    func() ([]Device, error)
	given      func() []Device
	interfaces func() ([]Interface, error)
	system     func() (nldev.System, error)

	mu      sync.Mutex
	answers map[string]func() (*Answers, error)
}

// notebook is what a check saw. A check that was left behind may still write into it.
type notebook struct {
	mu    sync.Mutex
	notes []string
}

func (b *notebook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.notes...)
}

// begin makes a node that shares what the checks of one examination find out.
func (n *Node) begin() *Node {
	view := *n
	view.known = &known{answers: make(map[string]func() (*Answers, error))}
	view.known.devices = sync.OnceValues(view.inventory)
	view.known.given = sync.OnceValue(view.given)
	view.known.system = sync.OnceValues(func() (nldev.System, error) {
		c, err := view.dial()
		if err != nil {
			return nldev.System{}, err
		}
		defer c.Close()
		return c.System()
	})
	view.known.interfaces = sync.OnceValues(func() ([]Interface, error) {
		if view.Interfaces == nil {
			return nil, fmt.Errorf("the network devices cannot be listed here")
		}
		return view.Interfaces()
	})
	return &view
}

// with makes a node whose notes go into a notebook.
func (n *Node) with(b *notebook) *Node {
	view := *n
	view.notes = b
	return &view
}

// saw notes what a check looked at, for -v.
func (n *Node) saw(format string, args ...any) {
	n.notes.mu.Lock()
	defer n.notes.mu.Unlock()
	n.notes.notes = append(n.notes.notes, fmt.Sprintf(format, args...))
}

// dial opens RDMA netlink. Where /sys shows that the module which has it is not loaded, nobody
// is asked: the question could have the kernel load it.
func (n *Node) dial() (Netlink, error) {
	if n.Netlink == nil || n.absent("ib_core", classDevices) {
		return nil, nldev.ErrNoRDMA
	}
	return n.Netlink()
}

// devices lists the devices that are to be looked at: the one that was asked for, else all
// that this process was given. What they are was found out once, and is not to be changed.
// That they cannot be listed is told by the check of devices.
func (n *Node) devices() []Device {
	all, _ := n.known.devices()
	if n.Device == "" {
		return n.known.given()
	}
	return slices.DeleteFunc(slices.Clone(all), func(d Device) bool { return d.Name != n.Device })
}

// given leaves out the devices that others have: /sys shows a container all of the machine's,
// also where it was given one by its file in /dev.
func (n *Node) given() []Device {
	all, _ := n.known.devices()
	if len(all) < 2 || n.Stat == nil || n.container().kind == "" {
		return all
	}
	given := slices.DeleteFunc(slices.Clone(all), func(d Device) bool { return d.Uverbs != "" && n.missing(n.file(&d)) })
	if len(given) == 0 {
		return all // then it was meant to have one
	}
	return given
}

// interfaces lists the network devices of this network namespace.
func (n *Node) interfaces() ([]Interface, error) { return n.known.interfaces() }

// netdev finds a network device of this network namespace by name.
func (n *Node) netdev(name string) (Interface, bool) {
	all, _ := n.interfaces()
	for _, i := range all {
		if i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}

// settings are those of the RDMA core.
func (n *Node) settings() (nldev.System, error) { return n.known.system() }

// query opens a device, once for all checks, and asks it what it can do.
func (n *Node) query(device string) (*Answers, error) {
	n.known.mu.Lock()
	ask, ok := n.known.answers[device]
	if !ok {
		ask = sync.OnceValues(func() (*Answers, error) {
			if n.Query == nil {
				return nil, fmt.Errorf("%s cannot be opened here", device)
			}
			return n.Query(device)
		})
		n.known.answers[device] = ask
	}
	n.known.mu.Unlock()
	return ask()
}

// process is the folder in /proc of the process to look at.
func (n *Node) process() string {
	if n.PID > 0 {
		return "proc/" + strconv.Itoa(n.PID)
	}
	return "proc/self"
}

// maxFile is more than any file that checks read whole has.
const maxFile = 4 << 20

// read reads a file, such as "proc/self/status". Errors name it with its slash.
func (n *Node) read(name string) (string, error) {
	f, err := n.Root.Open(name)
	if err != nil {
		return "", fmt.Errorf("/%s: %w", name, bare(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("/%s: %w", name, bare(err))
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("/%s: more than %d bytes", name, maxFile)
	}
	return string(b), nil
}

// line reads a file of one line, without its end.
func (n *Node) line(name string) (string, error) {
	s, err := n.read(name)
	return strings.TrimSuffix(s, "\n"), err
}

// names lists a folder in the order of the names.
func (n *Node) names(dir string) ([]string, error) {
	entries, err := fs.ReadDir(n.Root, dir)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", dir, bare(err))
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// exists tells whether there is such a file or folder.
func (n *Node) exists(name string) bool {
	_, err := fs.Stat(n.Root, name)
	return err == nil
}

// procfs and sysfs tell whether /proc and /sys are mounted. Of a /proc without the rest or
// of another PID namespace only one of the two is there.
func (n *Node) procfs() bool { return n.exists("proc/self") || n.exists("proc/sys") }
func (n *Node) sysfs() bool  { return n.exists("sys/class") }

// absent tells whether a module that makes a class of devices is surely not there: there is
// neither the class nor the module, and /sys is there to show them.
func (n *Node) absent(module, class string) bool {
	return n.sysfs() && !n.exists(class) && !n.modules().state(module).running()
}

// link reads where a symbolic link leads.
func (n *Node) link(name string) (string, error) {
	target, err := fs.ReadLink(n.Root, name)
	if err != nil {
		return "", fmt.Errorf("/%s: %w", name, bare(err))
	}
	return target, nil
}

// bare is the reason of an error that names its file.
func bare(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// Validate says what is wrong with what the node was asked to look at.
func (n *Node) Validate() error {
	if strings.ContainsFunc(n.Device, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return fmt.Errorf("%q cannot be the name of a device: verbs devinfo -l lists those that exist", n.Device)
	}
	if n.PID > 0 && n.System == "linux" && !n.exists(n.process()+"/status") {
		if !n.procfs() {
			return fmt.Errorf("process %d cannot be looked at, as /proc is not mounted: mount -t proc proc /proc", n.PID)
		}
		return fmt.Errorf("there is no process %d, or it is not of this PID namespace: /%s/status does not exist", n.PID, n.process())
	}
	return nil
}
