// Package freshness implements the decisions of a shared HTTP cache: may this
// response be stored, for how long is it fresh, may it be used for this
// request, how is it revalidated, and what does the origin's answer change.
//
// It follows RFC 9111 (caching), RFC 9110 (fields, dates, validators), RFC 5861
// (stale-while-revalidate and stale-if-error) and RFC 8246 (immutable). Each
// function names its section. The functions are pure: they read no clock, do no
// I/O and keep no state; times are arguments. So every rule can be tested as a
// line in a table, and package fill, which has the queue, the network and the
// store, contains no caching rule.
//
// # The life of a response
//
// A response has two times: when the request was sent and when the response was
// received ([Response]). [Storable] says whether it may be stored, and if not
// why. [StoredHeader] returns the header fields that may be stored with it, and
// [VaryKey] the variant: the values of the request fields that Vary names.
//
// For a request that matches a stored response, [Judge] compares [Age], which
// grows, with [Lifetime], which does not, applies the Cache-Control of request
// and response, and returns a [Verdict]:
//
//   - [Fresh]: use it.
//   - [StaleWhileRevalidate]: use it, and refresh it in the background.
//   - [StaleIfError]: ask the origin, and use it if that fails ([ErrorStatus]).
//   - [MustRevalidate]: ask the origin, and do not use it if that fails.
//   - [Unusable]: the client accepts only cached responses (only-if-cached), and
//     none is usable. The answer is 504.
//
// [Conditions] returns the fields that make the request to the origin
// conditional. A 304 goes to [Update], which returns the response with its new
// header and its new times; with several variants, [Selected] tells which of
// them a 304 is for. A 304 may change the directives too, so the caller calls
// Storable and VaryKey again for what Update returned. A 304 that is for no
// stored response is [ErrValidator].
//
// # Doubt makes stale
//
// Headers are written by untrusted origins, by hand, and by layers of software
// that do not know of each other. Where a field cannot be parsed, this package
// takes the reading that reuses less: a max-age that is no number is a max-age
// of zero, an Expires that is no date is in the past, of two values for one
// directive the stricter one holds, a permission (max-stale, stale-if-error,
// stale-while-revalidate) with an invalid value is none, with an Age that is
// not one number nothing is fresh. The worst that follows is one more request
// to the origin.
//
// Numbers of seconds above 2³¹ are taken as 2³¹ (§1.2.2), and all sums saturate
// at the largest duration. A clock that is set back never makes a response
// younger than it was when it was received.
//
// # Where the standard leaves a choice
//
//   - s-maxage forbids a shared cache to serve stale, just as proxy-revalidate
//     does (§5.2.2.10, §4.2.4), and that holds next to stale-while-revalidate
//     and stale-if-error too: of two that disagree the stricter is honoured. An
//     origin that wants both says max-age.
//   - What a request accepts by max-stale is used at once and refreshed in the
//     background: StaleWhileRevalidate.
//   - stale-if-error of the request and of the response are two permissions, and
//     the longer one holds (RFC 5861 §4). [Policy] applies where the response has
//     none.
//   - A fresh response that is immutable is not revalidated because a client
//     reloads with max-age; it is, if the client says no-cache (RFC 8246 §2.1).
//   - A 304 without any validator answers our own conditional request, which named
//     one stored response; so it is for that one. RFC 9110 §15.4.5 lets a server
//     leave Last-Modified out, and refusing such a 304 would fetch the whole
//     again each time.
//   - Last-Modified is always a weak validator here. It freshens one variant,
//     never several of the same second.
//   - no-cache="field" and private="field" let the rest be stored: StoredHeader
//     omits the named fields. If one of them is a field without which the rest
//     cannot be understood (Vary, Content-Type and a few more), the whole
//     response is meant. It is the same with such a field named by Connection.
//   - The heuristic lifetime is a tenth of the time since Last-Modified, up to
//     what Policy allows. A cacheable error without a lifetime gets
//     Policy.Negative.
//
// # Variants
//
// Two requests select the same variant if every field that Vary names has the
// same value in both, or is absent in both (§4.1). Values are compared after a
// careful normalisation, the same for all: lines are joined by commas, white
// space around commas is removed. The order of members counts. Two fields are
// known well enough for more. Accept-Language ignores case. Accept-Encoding
// ignores case, order and repetition, writes weights in one way, and takes
// x-gzip for gzip and x-compress for compress (RFC 9110 §8.4.1). An absent
// field and an empty one differ.
//
// # What it refuses to do
//
// It does not parse URLs into cache keys, combine partial responses, or store
// the answer to anything but GET, and sends nothing that could invalidate a
// stored response (§4.4). It is no private cache: what is meant for one user is
// not stored. It reads neither ranges nor conditions such as If-None-Match from
// clients: the server in front does. And it ignores cookies: Set-Cookie does
// not keep a response from being stored (§7.3).
//
// Header keys are expected in canonical form, as net/http makes them. One habit
// of net/http shows: its client turns a response's lone "Pragma: no-cache" into
// "Cache-Control: no-cache".
package freshness
