package nldev

// Limits of what the kernel can mean.
const (
	maxNameLength       = 63 // IB_DEVICE_NAME_MAX less the final zero
	maxNetdevNameLength = 15 // IFNAMSIZ less the final zero
	maxTextLength       = 255
)
