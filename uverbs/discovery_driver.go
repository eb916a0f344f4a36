package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// Driver is the kernel driver of a device. The number (enum rdma_driver_id of
// rdma/ib_user_ioctl_verbs.h) stands in every request.
type Driver uint32

// The drivers that the kernel knows.
const (
	DriverUnknown = Driver(abi.RDMA_DRIVER_UNKNOWN)
	DriverMlx5    = Driver(abi.RDMA_DRIVER_MLX5)
	DriverMlx4    = Driver(abi.RDMA_DRIVER_MLX4)
	DriverCxgb3   = Driver(abi.RDMA_DRIVER_CXGB3)
	DriverCxgb4   = Driver(abi.RDMA_DRIVER_CXGB4)
	DriverMthca   = Driver(abi.RDMA_DRIVER_MTHCA)
	DriverBnxtRE  = Driver(abi.RDMA_DRIVER_BNXT_RE)
	DriverOcrdma  = Driver(abi.RDMA_DRIVER_OCRDMA)
	DriverNes     = Driver(abi.RDMA_DRIVER_NES)
	DriverIrdma   = Driver(abi.RDMA_DRIVER_IRDMA) // and its predecessor i40iw
	DriverPvrdma  = Driver(abi.RDMA_DRIVER_VMW_PVRDMA)
	DriverQedr    = Driver(abi.RDMA_DRIVER_QEDR)
	DriverHNS     = Driver(abi.RDMA_DRIVER_HNS)
	DriverUsnic   = Driver(abi.RDMA_DRIVER_USNIC)
	DriverRXE     = Driver(abi.RDMA_DRIVER_RXE) // soft-RoCE
	DriverHFI1    = Driver(abi.RDMA_DRIVER_HFI1)
	DriverQIB     = Driver(abi.RDMA_DRIVER_QIB)
	DriverEFA     = Driver(abi.RDMA_DRIVER_EFA)
	DriverSIW     = Driver(abi.RDMA_DRIVER_SIW) // soft-iWARP
	DriverERDMA   = Driver(abi.RDMA_DRIVER_ERDMA)
	DriverMANA    = Driver(abi.RDMA_DRIVER_MANA)
	DriverIonic   = Driver(21) // newer than the headers of package abi
)

var driverNames = [...]string{
	DriverUnknown: "unknown", DriverMlx5: "mlx5", DriverMlx4: "mlx4", DriverCxgb3: "cxgb3", DriverCxgb4: "cxgb4",
	DriverMthca: "mthca", DriverBnxtRE: "bnxt_re", DriverOcrdma: "ocrdma", DriverNes: "nes", DriverIrdma: "irdma",
	DriverPvrdma: "vmw_pvrdma", DriverQedr: "qedr", DriverHNS: "hns", DriverUsnic: "usnic", DriverRXE: "rxe",
	DriverHFI1: "hfi1", DriverQIB: "qib", DriverEFA: "efa", DriverSIW: "siw", DriverERDMA: "erdma", DriverMANA: "mana",
	DriverIonic: "ionic",
}

// String is the driver's name, such as "mlx5" or "rxe".
func (d Driver) String() string {
	if int64(d) < int64(len(driverNames)) {
		return driverNames[d]
	}
	return fmt.Sprintf("Driver(%d)", uint32(d))
}
