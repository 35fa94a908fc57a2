// Package talk is how the bench and the programs that it measures with letters
// speak to each other, seen from the program.
//
// A program publishes or counts. One that publishes reads from its standard
// input, in lines, how many more letters it may send. One that counts writes to
// descriptor 3, in lines, how many have come. Between the two sits the bench
// (package letters), which holds the clock and gives a new permit for letters
// that have arrived, so nobody is measured while dropping.
//
// A letter begins with its number, eight bytes, and is filled up with noise
// that everybody knows. The one who counts adds the numbers up, besides counting:
// a letter that came twice does not make good for another that was lost.
package talk
