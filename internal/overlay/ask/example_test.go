package ask_test

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/ask"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
)

// wire stands in for a session: what one node tells, the other hears at once.
type wire struct {
	serial, corr uint64
	to           *ask.Asks // the other node
	back         *wire     // ourselves, as the other sees us
}

func (w *wire) Peer() oap.PeerID                            { return oap.PeerID{byte(w.serial)} }
func (w *wire) Serial() uint64                              { return w.serial }
func (w *wire) Corr() uint64                                { w.corr++; return w.corr }
func (w *wire) MaxFrame() int                               { return oap.MaxPayload }
func (w *wire) Give(_ uint64, _ int, out session.Out) error { return w.Tell(out) }

func (w *wire) Tell(out session.Out) error {
	w.to.Message(w.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: out.Message})
	out.Written(nil)
	return nil
}

// One node asks another who has an object. The deadline is the caller's.
func ExampleAsks_Ask() {
	sup, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, Total: time.Second})
	answerers, _ := sup.NewGroup(supervise.GroupSpec{Service: "overlay", Kind: "answerer", Stage: "all", Max: 4})

	asker := ask.New(flow.NewInventory(), ask.Spec{Answerers: answerers})
	knows := ask.New(flow.NewInventory(), ask.Spec{Answerers: answerers,
		Answer: func(_ context.Context, q ask.Question) ask.Found {
			return ask.Found{Providers: []ask.Provider{{ID: "somebody", HTTP: []string{"http://192.0.2.1:8080"}, Age: time.Minute}}}
		}})
	there, here := &wire{serial: 1, to: knows}, &wire{serial: 2, to: asker}
	there.back, here.back = here, there
	asker.Opened(there)
	knows.Opened(here)

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found, err := asker.Ask(ctx, there, ask.Question{Obj: "b3:…", Most: 8})
	fmt.Println(found.Providers[0].ID, found.Providers[0].HTTP, err)
	asker.Closed(there)
	knows.Closed(here)
	_ = answerers.Wait(ctx)
	// Output: somebody [http://192.0.2.1:8080] <nil>
}
