// Package freshness answers the questions of a shared HTTP cache: may this
// response be stored, for how long is it good, may it be used for this request,
// what do we ask the origin, and what do we do with its answer.
//
// The answers are those of RFC 9111 (caching), RFC 9110 (fields, dates,
// validators), RFC 5861 (stale-while-revalidate and stale-if-error) and RFC 8246
// (immutable). Each function says which section it follows. They are pure: they
// read no clock, open nothing, remember nothing, and times are arguments. So
// every rule can be written down as a line in a table and tried, and package
// fill, which has the queue, the network and the store, has no rule in it.
//
// # The life of a response
//
// A response comes in with two times: when the request left and when the
// response came ([Response]). [Storable] says whether it may be kept, and if not
// why. [Kept] gives the header fields that may be kept with it, and [VaryKey]
// tells under which variant: the values of the request fields that Vary names.
//
// When a request comes for what is stored, [Judge] compares [Age], which grows,
// with [Lifetime], which does not, listens to what the request and the response
// say in Cache-Control, and returns a [Verdict]:
//
//   - [Fresh]: use it.
//   - [StaleWhileRevalidate]: use it, and refresh it behind the client's back.
//   - [StaleIfError]: ask the origin, and use it if that fails ([ErrorStatus]).
//   - [MustRevalidate]: ask the origin, and do not use it if that fails.
//   - [Unusable]: the client wants nothing but the cache (only-if-cached), and
//     the cache has nothing that fits. The answer is 504.
//
// To ask the origin, [Conditions] gives the fields that make the request
// conditional. A 304 goes to [Update], which returns the response with its new
// header and its new times; with several variants at hand, [Selected] tells
// which of them a 304 speaks for. A 304 may change the directives too, so the
// caller asks Storable and VaryKey again for what Update returned. A 304 that
// speaks for nothing we hold is [ErrValidator]. The answer to a HEAD is never
// stored, but [UpdateFromHead] reads from it whether what is stored still
// stands. A request that changes things makes stored responses wrong:
// [InvalidateTargets] names them.
//
// # Doubt makes stale
//
// Headers are written by strangers, by hand, by five layers of software that do
// not know of each other. Where a field cannot be understood, this package takes
// the reading that reuses less: a max-age that is no number is a max-age of
// zero, an Expires that is no date is in the past, of two values for one
// directive the stricter one holds, a permission (max-stale, stale-if-error,
// stale-while-revalidate) with a broken value is none. The worst that follows is
// one more question to the origin. Two fields are the exception because the
// standard says so: an Age that is no number is ignored, and of several the
// first counts (RFC 9111 §5.1).
//
// Numbers of seconds above 2³¹ are taken as 2³¹ (§1.2.2), and all sums stay at
// the largest duration instead of wrapping round. A clock that went backwards
// makes nothing younger than it was when it came.
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
//     the longer one holds (RFC 5861 §4). [Policy] speaks where the response is
//     silent.
//   - A fresh response that is immutable is not checked again because a client
//     reloads with max-age; it is, if the client says no-cache (RFC 8246 §2.1).
//   - A 304 without any validator is the answer to our own question, which named
//     one stored response; so it speaks for that one. RFC 9110 §15.4.5 lets a
//     server leave Last-Modified out, and refusing such a 304 would fetch the
//     whole again each time.
//   - Last-Modified is always a weak validator here. It freshens one variant,
//     never several of the same second.
//   - no-cache="field" and private="field" let the rest be stored: the named
//     fields are left out by Kept. If one of them is a field without which the
//     rest cannot be understood (Vary, Content-Type and a few more), the whole
//     response is meant. It is the same with such a field named by Connection.
//   - Heuristics take a tenth of the time since Last-Modified, up to what Policy
//     allows. An error that may be cached but does not say for how long lives
//     for Policy.Negative.
//
// # Variants
//
// Two requests ask for the same variant if every field that Vary names has the
// same value in both, or is absent in both (§4.1). Values are compared after a
// careful normalisation, the same for all: lines are joined by commas, white
// space around commas goes. The order of members counts. Two fields are known
// well enough for more. Accept-Language ignores case. Accept-Encoding ignores
// case, order and repetition, writes weights in one way, and takes x-gzip for
// gzip and x-compress for compress (RFC 9110 §8.4.1). A field that is absent
// and one that is empty differ.
//
// # What it refuses to do
//
// It does not parse URLs into cache keys, combine partial responses, or store
// the answer to anything but GET. It keeps no private cache: what is meant for
// one user is not stored. It does not read If-None-Match and its kin from
// clients, nor ranges: that is the work of the server in front. And it has no
// opinion on cookies: Set-Cookie does not keep a response from being stored
// (§7.3).
//
// Header keys are expected in canonical form, as net/http makes them. One habit
// of net/http shows: its client turns a response's lone "Pragma: no-cache" into
// "Cache-Control: no-cache" before anybody sees it.
package freshness
