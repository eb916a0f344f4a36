package uverbs

import (
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/abi"
)

// PortState is the logical state of a port.
type PortState uint8

// The port states. Traffic flows on an active port only.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String names the state as ibv_devinfo does.
func (s PortState) String() string {
	names := [...]string{"PORT_NOP", "PORT_DOWN", "PORT_INIT", "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PortState(%d)", uint8(s))
}

// PhysState is the physical state of a port.
type PhysState uint8

// The physical states.
const (
	PhysSleep         PhysState = 1
	PhysPolling       PhysState = 2
	PhysDisabled      PhysState = 3
	PhysTraining      PhysState = 4
	PhysLinkUp        PhysState = 5
	PhysErrorRecovery PhysState = 6
	PhysTest          PhysState = 7
)

// String names the state as ibv_devinfo does.
func (s PhysState) String() string {
	names := [...]string{"NOP", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY TEST"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PhysState(%d)", uint8(s))
}

// LinkLayer is what a port's packets travel on.
type LinkLayer uint8

// The link layers.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// String names the link layer as ibv_devinfo does.
func (l LinkLayer) String() string {
	switch l {
	case LinkUnspecified:
		return "Unspecified"
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return fmt.Sprintf("LinkLayer(%d)", uint8(l))
}

// PortCaps are capability bits of a port (enum ib_uverbs_query_port_cap_flags
// of rdma/ib_user_ioctl_verbs.h).
type PortCaps uint32

// String lists the bits by the kernel's names.
func (c PortCaps) String() string {
	return shortNames(abi.UverbsQueryPortCapFlags(c).String(), "IB_UVERBS_PCF_")
}

// PortAttr is what a port is and can do.
type PortAttr struct {
	Port      int // from 1
	State     PortState
	PhysState PhysState
	LinkLayer LinkLayer

	// MaxMTU and ActiveMTU are packet payloads in bytes: what the port can,
	// and what the link below it lets it. 0 stands for a code that is not
	// known.
	MaxMTU, ActiveMTU int
	// MaxMessage is the longest message in bytes.
	MaxMessage uint32

	// GIDs and PKeys are the lengths of the port's tables.
	GIDs, PKeys int

	// LID, LMC, SMLID, SMSL, SubnetTimeout and InitTypeReply are
	// InfiniBand's; 0 on Ethernet. SubnetTimeout is an exponent: 4.096 us
	// times two to the power of it.
	LID           uint16
	LMC           uint8
	SMLID         uint16
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	// MaxVLs is how many virtual lanes there are, 0 if not known.
	MaxVLs int

	// Width is the number of lanes and LaneGbps the speed of one in Gb/s,
	// both by the name of the speed: EDR is 25. 0 stands for a code that is
	// not known. Ethernet ports report what comes nearest.
	Width    int
	LaneGbps float64

	// Caps and Caps2 are capability bits.
	Caps  PortCaps
	Caps2 uint16
	// GRHRequired tells whether every address needs a GID.
	GRHRequired bool

	// BadPKeys and QKeyViolations count packets that were refused.
	BadPKeys, QKeyViolations uint32
}

// Gbps is the speed of the port in Gb/s, 0 if not known.
func (p PortAttr) Gbps() float64 { return float64(p.Width) * p.LaneGbps }

// flagGRHRequired is IB_UVERBS_QPF_GRH_REQUIRED of rdma/ib_user_ioctl_verbs.h.
const flagGRHRequired = uint8(abi.IB_UVERBS_QPF_GRH_REQUIRED)

// PortAttr asks the device about one of its ports, numbered from 1.
func (d *Device) PortAttr(port int) (PortAttr, error) {
	const op = "query port"
	if err := d.checkPort(op, port); err != nil {
		return PortAttr{}, err
	}
	resp := new(abi.UverbsQueryPortRespEx)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT)
	r.constant(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, uint64(port))
	r.out(abi.UVERBS_ATTR_QUERY_PORT_RESP, resp.Bytes())
	if err := d.call(op, r); err != nil {
		return PortAttr{}, err
	}
	return portAttr(port, resp), nil
}

func portAttr(port int, resp *abi.UverbsQueryPortRespEx) PortAttr {
	p := &resp.LegacyResp
	speed := resp.ActiveSpeedEx
	if speed == 0 {
		// Kernels before 6.12 only have the byte.
		speed = uint32(p.ActiveSpeed)
	}
	return PortAttr{
		Port: port, State: PortState(p.State), PhysState: PhysState(p.PhysState), LinkLayer: LinkLayer(p.LinkLayer),
		MaxMTU: mtuBytes(p.MaxMTU), ActiveMTU: mtuBytes(p.ActiveMTU), MaxMessage: p.MaxMsgSz,
		GIDs: int(min(p.GIDTblLen, 1<<31-1)), PKeys: int(p.PKeyTblLen),
		LID: p.LID, LMC: p.LMC, SMLID: p.SMLID, SMSL: p.SMSL, SubnetTimeout: p.SubnetTimeout, InitTypeReply: p.InitTypeReply,
		MaxVLs: virtualLanes(p.MaxVLNum), Width: lanes(p.ActiveWidth), LaneGbps: laneGbps(speed),
		Caps: PortCaps(p.PortCapFlags), Caps2: resp.PortCapFlags2, GRHRequired: p.Flags&flagGRHRequired != 0,
		BadPKeys: p.BadPKeyCntr, QKeyViolations: p.QKeyViolCntr,
	}
}

// mtuBytes translates enum ib_mtu.
func mtuBytes(code uint8) int {
	if code < 1 || code > 5 {
		return 0
	}
	return 128 << code
}

// virtualLanes translates InfiniBand's VLCap.
func virtualLanes(code uint8) int {
	switch code {
	case 1, 2, 3, 4:
		return 1 << (code - 1)
	case 5:
		return 15
	}
	return 0
}

// lanes translates enum ib_port_width.
func lanes(code uint8) int {
	return bitValue(uint32(code), []int{1, 4, 8, 12, 2})
}

// laneGbps translates enum ib_port_speed into the speeds that /sys reports.
func laneGbps(code uint32) float64 {
	return bitValue(code, []float64{
		2.5, 5, 10, 10, // SDR, DDR, QDR, FDR10
		14, 25, 50, 100, 200, // FDR, EDR, HDR, NDR, XDR
	})
}

// bitValue is what the one bit of a code stands for, or 0.
func bitValue[T int | float64](code uint32, values []T) T {
	if i := bits.TrailingZeros32(code); i < len(values) && code == 1<<i {
		return values[i]
	}
	return 0
}
