// Package letters drives a line of programs that carry letters from one that
// publishes to those that count, and measures how many arrive in a second.
//
// It is a closed loop. The publisher has a permit for so many letters, the
// window. Each counter reports what has come, in steps; what all of them have
// makes room for new permits. So no more than a window is ever under way, every
// queue on the line can be as large as that, and nobody is measured while
// dropping. At the end of a turn all letters must have arrived, each once: a
// turn with a loss is an error and gives no figure.
//
// The loop runs in the bench, between the programs. Once for each step it costs
// two wake-ups, for every line alike.
package letters
