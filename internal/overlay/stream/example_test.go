package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
	"micronode/internal/supervise"
)

// inProcessPeer stands in for a session: what one node sends, the other
// receives at once.
type inProcessPeer struct {
	serial uint64
	dialed bool
	to     *stream.Streams // the other node
	back   *inProcessPeer  // ourselves, as the other sees us
}

func (i *inProcessPeer) Peer() oap.PeerID { return oap.PeerID{byte(i.serial)} }
func (i *inProcessPeer) Serial() uint64   { return i.serial }
func (i *inProcessPeer) Dialed() bool     { return i.dialed }
func (i *inProcessPeer) Chunk() int       { return 8 }

func (i *inProcessPeer) Pace() *session.Pace { return nil }

func (i *inProcessPeer) SendBulk(_ uint64, _ int, out session.Outgoing) error {
	return i.SendControl(out)
}

func (i *inProcessPeer) SendControl(out session.Outgoing) error {
	err := i.to.Message(i.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: out.Message})
	if out.Written != nil {
		out.Written(err)
	}
	return err
}

// object is an object to send.
type object struct{ *bytes.Reader }

func (object) Close() error { return nil }

// One node requests an object from another by its address and reads it like any
// other reader. io.EOF says that it is complete and right, and io.ReadAll
// returns no error only after that.
func ExampleStreams_Fetch() {
	sup, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	givers, _ := sup.NewGroup(supervise.GroupSpec{Service: "overlay", Kind: "giver", Stage: "all", Max: 4})
	text := []byte("hello, world, in chunks of eight bytes")

	asker := stream.New(flow.NewInventory(), stream.Spec{Senders: givers})
	giver := stream.New(flow.NewInventory(), stream.Spec{Senders: givers,
		Open: func(_ context.Context, address b3.Address) (stream.Source, error) {
			if address != b3.Of(text) {
				return nil, fault.NotFound
			}
			return object{bytes.NewReader(text)}, nil
		}})
	there, here := &inProcessPeer{serial: 1, dialed: true, to: giver}, &inProcessPeer{serial: 2, to: asker}
	there.back, here.back = here, there
	asker.Opened(there)
	giver.Opened(here)

	fetch := func(address b3.Address) (string, error) {
		download, err := asker.Fetch(context.Background(), address, func(tried []oap.PeerID) stream.Peer {
			if len(tried) > 0 {
				return nil // there is no other peer
			}
			return there
		})
		if err != nil {
			return "", err
		}
		defer download.Close()
		got, err := io.ReadAll(download)
		return string(got), err
	}
	fmt.Println(fetch(b3.Of(text)))
	_, err := fetch(b3.Of([]byte("something else")))
	fmt.Println(fault.KindOf(err).Code())

	_ = givers.Wait(context.Background())
	// Output:
	// hello, world, in chunks of eight bytes <nil>
	// NotFound
}
