package session_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// printer passes on the gossip that it receives.
type printer struct{ heard chan string }

func (p printer) Opened(*session.Session) {}

func (p printer) Gossip(_ *session.Session, list []session.IncomingGossip) {
	for _, one := range list {
		p.heard <- string(one.Gossip.Msg)
	}
}

func (p printer) Message(*session.Session, session.Incoming) error { return nil }
func (p printer) Closed(*session.Session, error)                   {}

// node makes the sessions of a node, and runs them until the context ends.
func node(ctx context.Context, seed byte, handler session.Handler) *session.Sessions {
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	if err != nil {
		panic(err)
	}
	group := func(kind string) *supervise.Group {
		g, err := supervisor.NewGroup(supervise.GroupSpec{Service: "overlay", Kind: kind, Stage: "all", Max: 100})
		if err != nil {
			panic(err)
		}
		return g
	}
	s, err := session.New(flow.NewInventory(), session.Spec{
		Key:    ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)),
		Config: session.DefaultConfig(), Peer: session.DefaultPeerConfig(), Burst: 64,
		Admit:   func(session.Candidate) error { return nil },
		Handler: handler,
		Tasks:   session.Tasks{Handshakes: group("handshake"), Readers: group("reader"), Writers: group("writer"), Dialers: group("keeper")},
	})
	if err != nil {
		panic(err)
	}
	if err := s.Listen(ctx, "127.0.0.1:0"); err != nil {
		panic(err)
	}
	go s.Serve(ctx)
	go s.RunDialers(ctx)
	return s
}

// One node dials another and sends it a message.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heard := make(chan string, 1)
	there := node(ctx, 1, printer{heard})
	here := node(ctx, 2, printer{})

	contact, err := session.ParseContact(there.ID().String() + "@" + there.Addr().String())
	if err != nil {
		panic(err)
	}
	here.SetContacts([]session.Contact{contact})
	testkit.Poll(func() bool { return here.Find(there.ID()) != nil })
	here.Find(there.ID()).OfferGossip([]flow.FairItem[session.Outgoing]{
		{Class: 1, Cost: 5, Item: session.Outgoing{Message: &oap.Gossip{Msg: []byte("storm"), Hops: 8, Fanout: 3}, Flags: oap.Event}},
	}, nil, nil)
	fmt.Println(<-heard)

	_ = here.Drain(ctx)
	_ = there.Drain(ctx)
	// Output: storm
}
