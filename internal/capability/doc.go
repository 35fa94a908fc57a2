// Package capability decides which requests are allowed.
//
// A node knows two kinds of callers. The node's own user, on the local socket,
// may do everything, and no other user can connect there at all, but for the
// members of a group that the operator names: the kernel names the user at the
// other end, so there is no password to leak. Every other
// caller shows a capability: a token that states what it allows and that the
// node can check without a table of users, because it signed it.
//
// # Tokens
//
// A token is a macaroon: an identifier, a list of caveats, and a chain of HMACs
// over them. Its text is the prefix mn1_ and the base64 of the standard binary
// form. A holder can add a caveat without the node ([Attenuate]), and cannot
// remove one. So a capability can only shrink as it is passed on:
//
//   - scope: what may be done, such as object:put. A token is minted with at
//     least one scope; [Admin] covers the admin surface and implies all others.
//     Those of the mailbox can be narrowed to one mailbox: mbox:send:jobs.
//   - expiry: until when.
//   - path and topic: only below these prefixes, by whole segments. A token
//     with a topic caveat covers only requests with a topic.
//   - client IP: only from these networks.
//   - rate: only so often. The meter belongs to the caveat, not to the token,
//     so a token with a rate and all that were attenuated from it share one
//     meter; passing copies on multiplies nothing.
//
// Within one caveat a list means "any of these"; several caveats of a kind must
// all hold. A token with an unknown caveat is rejected, and so is every token
// that is not in its one canonical spelling.
//
// [Authority.Verify] returns Unauthorized for a token that is malformed, forged
// or expired; Forbidden for a valid one that does not cover the request, with
// what is missing; RateLimited, with a time to retry, for one that is used too
// often. The work is bounded before any of it is done: by 4 KiB of text and 32
// caveats.
//
// A token that is minted with a token is that one narrowed
// ([Authority.MintFrom]), so it allows only what its parent does. A token that
// must no longer be used is revoked by its [TokenID], together with everything
// that was made from it; the revocation is dropped when the token would have
// expired. [Authority.Check] reports at any time whether a token is still
// valid, for whatever outlasts the request that it began with.
//
// # The root
//
// The [Root] is the key of the chain. By default it is random and lost with the
// process, and so are all tokens, which is what amnesia means. Processes that
// share tokens read the same root from a file, the environment or a descriptor.
// It lives in memory that the caller provides, and no verb of package fmt
// prints it. While a token is made or checked, the macaroon library holds
// derived keys on the ordinary heap for a moment; the promise of zeroed memory
// is about the root at rest.
//
// # The local socket
//
// [ListenLocal] and [DialLocal] ask the kernel for the credentials of the other
// side, both ways: an abstract socket belongs to the first process that binds
// it, so a client that did not check would send its requests to a squatter. A
// bare name is abstract and touches no disk. A name with a slash is a file,
// made with mode 0600 and removed at the end; making it is a write, so a
// process that is confined to write nothing must make it before, or be allowed
// sockets in that folder. The check compares user IDs as seen in this process's
// user namespace; do not run as the overflow user (65534) in one where other
// users are mapped to it. [LocalListener.Admit] lets a group in.
//
// # What it refuses to do
//
// It keeps no list of the tokens that it minted. It writes nothing, logs
// nothing, and puts neither tokens nor keys into the text of an error.
// Revocations live in memory; a caller that wants them to outlive the process
// saves the list of [Authority.Revoked], and passes it to
// [Authority.AddRevocations].
package capability
