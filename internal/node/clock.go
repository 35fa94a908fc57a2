package node

// clock is what the kernel says of its clock.
type clock int

const (
	clockUnknown clock = iota
	clockSynchronised
	clockAlone // no time service has set it
)
