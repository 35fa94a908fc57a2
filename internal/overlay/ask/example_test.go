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

// inProcessPeer stands in for a session: what one node sends, the other
// receives at once.
type inProcessPeer struct {
	serial, corr uint64
	to           *ask.Queries   // the other node
	back         *inProcessPeer // ourselves, as the other sees us
}

func (i *inProcessPeer) Peer() oap.PeerID { return oap.PeerID{byte(i.serial)} }
func (i *inProcessPeer) Serial() uint64   { return i.serial }
func (i *inProcessPeer) Corr() uint64     { i.corr++; return i.corr }
func (i *inProcessPeer) MaxFrame() int    { return oap.MaxPayload }
func (i *inProcessPeer) SendBulk(_ uint64, _ int, out session.Outgoing) error {
	return i.SendControl(out)
}

func (i *inProcessPeer) SendControl(out session.Outgoing) error {
	i.to.Message(i.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: out.Message})
	out.Written(nil)
	return nil
}

// One node asks another which nodes have an object. The deadline is the
// caller's.
func ExampleQueries_Ask() {
	sup, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	answerers, _ := sup.NewGroup(supervise.GroupSpec{Service: "overlay", Kind: "answerer", Stage: "all", Max: 4})

	asker := ask.New(flow.NewInventory(), ask.Spec{Answerers: answerers})
	knows := ask.New(flow.NewInventory(), ask.Spec{Answerers: answerers,
		Answer: func(_ context.Context, q ask.Question) ask.Found {
			return ask.Found{Providers: []ask.Provider{{ID: "somebody", HTTP: []string{"http://192.0.2.1:8080"}, Age: time.Minute}}}
		}})
	there, here := &inProcessPeer{serial: 1, to: knows}, &inProcessPeer{serial: 2, to: asker}
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
