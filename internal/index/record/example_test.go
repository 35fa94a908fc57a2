package record_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
)

func ExampleParseID() {
	for _, text := range []string{
		"docs",
		"bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi",
		"Docs",
		"bafybeibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq",
	} {
		id, err := record.ParseID(text)
		if err != nil {
			fmt.Println(fault.DetailOf(err))
			fmt.Println("->", fault.NextOf(err))
			continue
		}
		fmt.Println(id.Kind, id)
	}
	// Output:
	// name name:docs
	// cid b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
	// the name "Docs" is not in lower case and normal form C
	// -> Write it as docs.
	// "bafybeibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq" is a CID with the codec dag-pb and the hash SHA-256 (32 bytes)
	// -> Only raw blocks hashed with BLAKE3 (32 bytes) have an address here. Fetch it with IPFS software, then `micronode put` it and use the address that this prints.
}

// A node signs the record of a name; another node verifies it, wherever it came
// from.
func ExampleName() {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	raw := record.SignName(key, record.Name{
		Name:     "docs",
		Manifest: b3.Of([]byte("the folder")),
		Seq:      record.NextSeq(now, 0),
		Issued:   now,
		Expires:  now.Add(24 * time.Hour),
	}).Encode()

	n, err := record.DecodeName(raw)
	if err != nil {
		fmt.Println(err)
		return
	}
	asked := record.Question{Kind: record.ByName, Name: "docs", Owner: n.Owner()}
	fmt.Println(n.Name, n.Seq, n.Check(asked, now.Add(time.Hour), time.Second))
	fmt.Println(n.Check(asked, now.Add(24*time.Hour), time.Second))
	// Output:
	// docs 1893456000000 <nil>
	// index.record: the record of the name "docs" expired at 2030-01-02T00:00:00Z
}

func ExampleParseMultiaddr() {
	for _, text := range []string{
		"/ip4/192.0.2.1/tcp/9000/tls",
		"/dns/node.example/tcp/443/https/p2p/12D3KooWRawPbxPtP1eZaJpumGnyWX2DcUyd3RQnydr3eAto4Az7",
		"/ip4/192.0.2.1/udp/4001/quic-v1",
	} {
		fmt.Println(record.ParseMultiaddr(text))
	}
	// Output:
	// overlay 192.0.2.1:9000
	// http https://node.example:443
	// other /ip4/192.0.2.1/udp/4001/quic-v1
}
