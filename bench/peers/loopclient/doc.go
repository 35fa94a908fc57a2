// Package loopclient is the protocol between the bench and the programs that carry
// messages, on the side of the program.
//
// A program publishes or counts. A publisher reads from its standard input, in
// lines, how many more messages it may send. A counter writes to descriptor 3,
// in lines, how many have arrived. The bench is between the two (package
// messages): it measures time and grants a new permit for messages that have
// arrived, so that no figure includes drops.
//
// A message begins with its number, eight bytes, and is filled up with known
// noise. A counter adds the numbers up, besides counting: a duplicate does not
// make up for a lost message.
package loopclient
