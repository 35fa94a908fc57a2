module micronode/bench

go 1.26.0

require (
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.48.0
	micronode v0.0.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/klauspost/cpuid/v2 v2.0.9 // indirect
	lukechampine.com/blake3 v1.4.1 // indirect
)

replace micronode => ../
