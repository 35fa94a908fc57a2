// Package nearby finds nodes in the networks that this machine is connected to, by
// DNS-SD (RFC 6763) over multicast DNS (RFC 6762): it says where this node is, and
// remembers who says the same of itself. It connects to nobody and lets nobody in.
//
// What is heard is a claim of anybody in the network. So of a packet only three
// things are used: a peer ID, a port, and the address that the packet came from. No
// text of a stranger is kept or shown, and a node cannot name another host than its
// own. Everything is bounded: packets a second, records in a packet, nodes, nodes of
// one host, and how long they are remembered.
//
// There is one socket and one task. A network that vanishes, or multicast that is
// refused, is reported, and tried again with growing pauses.
//
// It speaks IPv4. A sender on IPv6 has a link-local address, which a session
// cannot be opened to.
package nearby
