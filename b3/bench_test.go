package b3_test

import (
	"fmt"
	"testing"

	zeebo "github.com/zeebo/blake3"
	lukechampine "lukechampine.com/blake3"

	"micronode/b3"
)

// BenchmarkOf is where the threshold of Of comes from: ours beside the two
// libraries, over the sizes of messages, chunks and small objects.
func BenchmarkOf(b *testing.B) {
	for _, size := range []int{32, 64, 256, 512, 1024, 1100, 1536, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 14336, 16384, 20480, 32768, 65536} {
		data := pattern(size)
		for name, sum := range map[string]func([]byte) [32]byte{
			"ours":         func(data []byte) [32]byte { return b3.Of(data) },
			"lukechampine": lukechampine.Sum256,
			"zeebo":        zeebo.Sum256,
		} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					sum(data)
				}
			})
		}
	}
}
