// Package load sends HTTP/1.1 requests over kept connections as fast as the
// other side answers, and checks every answer.
//
// It is what a measurement stands on, so it has three duties. It must cost
// little: on a machine with two cores, whatever the generator takes is taken
// from the server. So each thread owns an epoll and its share of the
// connections, reads all of them into one buffer that stays in the cache, and
// allocates nothing once it runs. It must not be lied to: the status and the
// length of every answer are checked, and every 64th body is compared byte by
// byte; the first wrong answer ends the run with what was wrong. And it must
// stay at home: an address that is not loopback is refused.
//
// Each connection asks, waits for the whole answer, and asks again: a closed
// loop. The latency that it reports is therefore the time in a system that is
// as busy as that many askers make it, not the time under a fixed rate.
//
// It does not speak TLS, HTTP/2 or pipelining, and it does not reconnect: a
// server that closes a connection has failed.
package load
