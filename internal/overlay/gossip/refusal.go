package gossip

import (
	"micronode/fault"
	"micronode/internal/oap"
)

// Operations, as they stand in errors.
const (
	opPublish   = "gossip.publish"
	opSubscribe = "gossip.subscribe"
	opReceive   = "gossip.recv"
)

// What peers are told. They are made once: a peer that floods must not make us
// work.
var (
	errFull   = fault.New("gossip.take", fault.Busy, "too many letters wait to be looked at")
	errSeen   = fault.New("gossip.take", fault.Busy, "too many letters are remembered to take more")
	errTopics = fault.New("gossip.take", fault.QuotaExceeded, "more topics than one peer may name")
)

// forged is why a peer is parted from that handed over a letter with a wrong
// signature.
func forged(cause error) error {
	return &fault.Error{Op: "gossip.take", Kind: fault.InvalidSig, Detail: "a forged letter: " + fault.DetailOf(cause), Err: oap.BadSig,
		Next: "It writes in the name of others, or passes letters on unchecked: update it, or let go of it with `micronode peers rm`."}
}

func busySeen(most int) error {
	err := fault.New(opPublish, fault.Busy, "the node remembers %d letters and can take no more until the oldest expire", most)
	err.Next = "Publish less, or ask the operator to raise overlay.gossip.seen."
	return err
}

func clockBack() error {
	err := fault.New(opPublish, fault.NotReady, "the clock of the node was set back, to a time whose letters are forgotten")
	err.Next = "Try again in some seconds, and see to it that the clock of the node is right."
	return err
}

func busyPeers(busy int) error {
	err := fault.New(opPublish, fault.Busy, "none of the %d peers takes more at the moment", busy)
	err.Next = "Try again after a pause. Subscribers of this node have it already."
	return err
}

func draining() error {
	err := fault.New(opPublish, fault.NotReady, "the node is draining")
	err.Next = "Publish through another node, or again when this one is back."
	return err
}

func tooManySubscriptions() error {
	err := fault.New(opSubscribe, fault.Busy, "there are %d subscriptions, and no room for more", maxSubscriptions)
	err.Next = "End a subscription that is not needed any more."
	return err
}
