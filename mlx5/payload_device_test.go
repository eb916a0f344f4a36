package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
)

// What a driver says that it compresses, of which older ones say less.
func TestParseCompression(t *testing.T) {
	whole := (&abi.MLX5IBQueryDeviceResp{ResponseLength: 112, CQECompCaps: abi.MLX5IBCQECompCaps{MaxNum: 64, SupportedFormat: 3}}).Bytes()
	less := append([]byte(nil), whole...)
	copy(less[4:], (&abi.MLX5IBQueryDeviceResp{ResponseLength: 39}).Bytes()[4:8])
	for name, c := range map[string]struct {
		b    []byte
		want Compression
	}{
		"all":            {whole, Compression{Formats: MiniHash | MiniChecksum, Completions: 64}},
		"just enough":    {whole[:40], Compression{Formats: MiniHash | MiniChecksum, Completions: 64}},
		"one byte less":  {whole[:39], Compression{}},
		"an older one":   {less, Compression{}},
		"nothing":        {nil, Compression{}},
		"no compression": {(&abi.MLX5IBQueryDeviceResp{ResponseLength: 112}).Bytes(), Compression{}},
	} {
		if got := ParseCompression(c.b); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
