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

// wire stands in for a session: what one node tells, the other hears at once.
type wire struct {
	serial uint64
	dialed bool
	to     *stream.Streams // the other node
	back   *wire           // ourselves, as the other sees us
}

func (w *wire) Peer() oap.PeerID                            { return oap.PeerID{byte(w.serial)} }
func (w *wire) Serial() uint64                              { return w.serial }
func (w *wire) Dialed() bool                                { return w.dialed }
func (w *wire) Chunk() int                                  { return 8 }
func (w *wire) Give(_ uint64, _ int, out session.Out) error { return w.Tell(out) }

func (w *wire) Tell(out session.Out) error {
	err := w.to.Message(w.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: out.Message})
	if out.Written != nil {
		out.Written(err)
	}
	return err
}

// object is something to give.
type object struct{ *bytes.Reader }

func (object) Close() error { return nil }

// One node asks another for an object by its address and reads it like any
// other reader. io.EOF says that it is whole and right, and io.ReadAll returns
// no error only after that.
func ExampleStreams_Fetch() {
	sup, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, Total: time.Second})
	givers, _ := sup.NewGroup(supervise.GroupSpec{Service: "overlay", Kind: "giver", Stage: "all", Max: 4})
	text := []byte("hello, world, in chunks of eight bytes")

	asker := stream.New(flow.NewInventory(), stream.Spec{Givers: givers})
	giver := stream.New(flow.NewInventory(), stream.Spec{Givers: givers,
		Open: func(_ context.Context, address b3.Address) (stream.Source, error) {
			if address != b3.Of(text) {
				return nil, fault.NotFound
			}
			return object{bytes.NewReader(text)}, nil
		}})
	there, here := &wire{serial: 1, dialed: true, to: giver}, &wire{serial: 2, to: asker}
	there.back, here.back = here, there
	asker.Opened(there)
	giver.Opened(here)

	fetch := func(address b3.Address) (string, error) {
		download, err := asker.Fetch(context.Background(), address, func(tried []oap.PeerID) stream.Peer {
			if len(tried) > 0 {
				return nil // there is nobody else
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
