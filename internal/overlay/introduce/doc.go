// Package introduce makes friends of friends acquainted, so that a network around
// one node stays one network without it. It has no tasks and sends nothing: it is
// the book in which a node writes whom it may introduce, and who was introduced to
// it.
//
// Three have to agree. A node that wants to be introduced signs that for each of
// its peers, by name ([oap.Introduction]): another one can do nothing with it. The
// introducer tells those that did so of each other. And a node believes only the
// peers that its operator has named, and only what they say of others: who was
// introduced introduces nobody.
//
// An introduction lasts until the introducer takes it back, while it is connected.
// When it is gone for good, its introductions stay, as long as the introduced node
// is seen at least once a week.
//
// # Who hears of whom
//
// The members are put into four rings, each in another order, which follows from
// their IDs alone. Each hears of its two neighbours in each ring, so of eight at
// most, and they hear of it. Rings in random order are connected, have short
// ways, and stay so when a third of the nodes is gone; one node more or less changes
// two neighbours in each.
package introduce
