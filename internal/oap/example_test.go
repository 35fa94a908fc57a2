package oap_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/internal/oap"
)

// A gossip message goes from its origin over a relay to a reader. The
// connection is a buffer here.
func Example() {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	written := time.UnixMilli(1_700_000_000_000)

	// The origin writes a gossip message and sends it, behind a ping.
	gossipMessage := oap.GossipMessage{
		Topic: "news/eu", Key: [32]byte(key.Public().(ed25519.PublicKey)),
		Seq: 1, TS: uint64(written.UnixMilli()), Data: []byte("storm"),
	}
	gossip, id, err := gossipMessage.Seal(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	gossip.Hops, gossip.Fanout = 8, 3
	agreed := oap.Codec{Max: oap.MaxPayload}
	wire, _ := agreed.AppendMessage(nil, oap.Req, 7, &oap.Ping{TS: 1})
	wire, _ = agreed.AppendMessage(wire, oap.Event, 8, &gossip)

	// The other side reads what comes.
	r := oap.NewReader(bytes.NewReader(wire), agreed)
	for {
		frame, err := r.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		message, err := oap.Decode(frame.Payload)
		if err != nil {
			fmt.Println(oap.CodeOf(err), err)
			return
		}
		switch m := message.(type) {
		case *oap.Ping:
			fmt.Println("ping", frame.Corr)
		case *oap.Gossip:
			got, gotID, err := m.Open()
			fmt.Println(got.Topic, string(got.Data), gotID == id, err)
			fmt.Println(m.Verify(&got, gotID))
			fmt.Println(got.CheckTime(written.Add(time.Hour), 2*time.Minute, 2*time.Minute))
		}
	}
	// Output:
	// ping 7
	// news/eu storm true <nil>
	// <nil>
	// oap.gossip: the letter is 3600000 ms old, and gossip is good for 2m0s: too old
	// EOF
}

// What is not OAP/1 is refused with the rule that it breaks and the code to
// send back.
func ExampleReader_Next() {
	r := oap.NewReader(bytes.NewReader([]byte("GET / HTTP/1.1\r\n\r\n")), oap.Codec{Max: oap.MaxPayload})
	_, err := r.Next()
	fmt.Println(err)
	fmt.Println(oap.CodeOf(err), oap.ReasonOf(err).Label())
	// Output:
	// oap.frame: a payload of 1195725829 bytes is over the cap of 1048576: frame too large
	// FrameTooLarge size
}
