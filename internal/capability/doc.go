// Package capability decides who may.
//
// A node knows two kinds of callers. Whoever comes over the local socket as
// the node's own user may do everything, and nobody else may come that way at
// all: the kernel says who is at the other end, so there is no password to
// leak. Everybody else shows a capability: a token that says what it is good
// for and that the node can check without a table of users, because it signed
// it.
//
// # Tokens
//
// A token is a macaroon: an identifier, a list of caveats, and a chain of
// HMACs over them. Its text is the prefix mn1_ and the base64 of the
// standard binary form. Whoever holds one can add a caveat without asking
// anybody ([Attenuate]), and nobody can take one away. So a capability can
// only shrink as it is passed on:
//
//   - scope: what may be done, such as object:put. A token is minted with at
//     least one scope; [Admin] covers the admin surface and implies all others.
//   - expiry: until when.
//   - path and topic: only below these prefixes, by whole segments. A token
//     with a topic caveat is good for nothing that has no topic.
//   - client IP: only from these networks.
//   - rate: only so often. The meter belongs to the caveat, not to the token,
//     so a token with a rate and all that were attenuated from it share one
//     meter; passing copies on multiplies nothing.
//
// Within one caveat a list means "any of these"; several caveats of a kind
// must all hold. A caveat that this node does not know is refused, and so is
// every token that is not in its one canonical spelling.
//
// [Authority.Verify] answers Unauthorized for a token that is no token, is
// forged, or has expired; Forbidden for a good one that does not cover the
// request, and says what is missing; RateLimited, with a time to come back,
// for one that is used too often. The work is bounded before any of it is
// done: by 4 KiB of text and 32 caveats.
//
// # The root
//
// The [Root] is the key of the chain. By default it is drawn at random and
// gone with the process, and so are all tokens, which is what amnesia means.
// Processes that share tokens read the same root from a file, the environment
// or a descriptor. It lives in memory that the caller provides, and no verb of
// package fmt prints it. While a token is made or checked, the macaroon
// library holds derived keys on the ordinary heap for a moment; the promise of
// zeroed memory is about the root at rest.
//
// # The local socket
//
// [ListenLocal] and [DialLocal] ask the kernel for the credentials of the
// other side, both ways: an abstract socket belongs to whoever binds it first,
// so a client that did not check would hand its requests to a squatter. A
// bare name is abstract and touches no disk. A name with a slash is a file,
// made with mode 0600 and removed at the end; making it is a write, so a
// process that is confined to write nothing must make it before, or be allowed
// sockets in that folder. The check compares user IDs as seen in this
// process's user namespace; do not run as the overflow user (65534) in one
// where strangers are mapped to it.
//
// # What it refuses to do
//
// It keeps no list of tokens and revokes none one by one: give them an expiry,
// or change the root. It writes nothing, logs nothing, and puts neither tokens
// nor keys into the text of an error.
package capability
