// Package bandwidth bounds how many bytes a second a node sends and receives.
//
// A [Meter] has a [Limiter] for each direction: a token bucket that every byte
// beyond this machine is charged to, and a line in front of it. What moves bulk
// (the body of an answer or an upload, a chunk of an object, the body of an
// origin) asks for its bytes with [Limiter.Wait] and may wait. What must not
// wait (pings, gossip, small answers) is charged with [Limiter.Charge]: it goes
// out at once, and bulk waits a little longer for it.
//
// Who waits has a [Share]. Shares have turns, one after the other, and each turn
// is worth the same number of bytes; so clients share a limit evenly, whatever
// the number and the size of their requests.
//
// A limit may have a [Schedule]. It is looked up when bytes move, so there is no
// task that has to change it.
//
// The package opens nothing and knows no protocol. Which bytes count, and what a
// transfer does while it waits, is up to who moves them.
package bandwidth
