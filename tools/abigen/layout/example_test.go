package layout_test

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/tools/abigen/layout"
)

func Example() {
	t, err := layout.Read(strings.NewReader(small))
	if err != nil {
		fmt.Println(err)
		return
	}
	ty, _ := t.Type("outer")
	for _, f := range ty.Fields {
		fmt.Println(f.Offset, f.Name, f.Type)
	}
	// Output:
	// 0 in type inner
	// 16 mac u8[6]
	// 24 data type inner[]
}
