module micronode/interop

go 1.26.0

require (
	github.com/ipfs/go-cid v0.6.0
	github.com/multiformats/go-multihash v0.2.3
	github.com/zeebo/blake3 v0.2.4
	micronode v0.0.0
)

require (
	github.com/klauspost/cpuid/v2 v2.0.12 // indirect
	github.com/minio/sha256-simd v1.0.0 // indirect
	github.com/mr-tron/base58 v1.2.0 // indirect
	github.com/multiformats/go-base32 v0.0.3 // indirect
	github.com/multiformats/go-base36 v0.1.0 // indirect
	github.com/multiformats/go-multibase v0.2.0 // indirect
	github.com/multiformats/go-varint v0.1.0 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	lukechampine.com/blake3 v1.4.1 // indirect
)

replace micronode => ../
