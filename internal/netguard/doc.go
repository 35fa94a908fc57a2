// Package netguard decides which addresses may be dialled.
//
// A node receives addresses from strangers all day: a router says where a
// provider is, a peer of the DHT says where another one is, an origin's name
// resolves to whatever its DNS says today. Dialling them unchecked would send
// requests behind the operator's own firewall on a stranger's behalf. So all
// code that dials an address it did not choose itself uses [Control] or
// [DialPolicy.Check], on the address that is really dialled, after its name was
// resolved; a test in internal/house finds code that does not.
//
// Three rules, from the strictest to the most lenient:
//
//   - Addresses where clouds serve their secrets are never dialled, whatever the
//     operator has set: link-local addresses, the metadata services of both
//     families, and every IPv6 form that embeds one of them (mapped, compatible,
//     NAT64, 6to4, Teredo, ISATAP).
//   - Loopback and private addresses need a [DialPolicy] that allows them.
//     [PolicyFor] derives one from the peers and routers that the operator has
//     named.
//   - All others must be public: no documentation, benchmarking or reserved
//     networks, no tunnels into other address families.
package netguard
