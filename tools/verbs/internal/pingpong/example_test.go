package pingpong_test

import (
	"fmt"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
)

func ExampleConfig_Validate() {
	cfg := pingpong.Default()
	cfg.MTU = 1500
	fmt.Println(cfg.Validate())
	// Output: path MTU 1500: allowed are 256, 512, 1024, 2048 and 4096
}
