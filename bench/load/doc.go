// Package load sends HTTP/1.1 requests over kept connections as fast as the
// server answers, and checks every response.
//
// Measurements rely on it, so it has three requirements. It must cost little:
// on a machine with two cores, whatever the generator takes is taken from the
// server. So each thread owns an epoll and its share of the connections, reads
// all of them into one buffer that stays in the cache, and allocates nothing
// once it runs. It must detect wrong responses: the status and the length of
// every response are checked, and every 64th body is compared byte by byte; the
// first wrong response ends the run with what was wrong. And it must stay
// local: an address that is not loopback is rejected.
//
// Each connection sends a request, waits for the whole response, and sends the
// next: a closed loop. The latency that it reports is therefore the time in a
// system that is as busy as that many clients make it, not the time under a
// fixed rate.
//
// It does not support TLS, HTTP/2 or pipelining, and it does not reconnect: a
// server that closes a connection has failed.
package load
