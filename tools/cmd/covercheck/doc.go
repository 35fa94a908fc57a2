// Command covercheck requires a minimum of statement coverage of packages.
//
//	go test -coverprofile=cover.out -coverpkg=./... ./...
//	covercheck -profile cover.out micronode/b3=90 micronode/fault=92.5
//
// It prints one line for each package asked for, and exits with 1 if one is below its minimum or not in the profile at all. For
// such a package it names the least covered functions with file and line, because that is where the next test belongs. A profile
// that was merged from several runs counts each block of code once: a block is covered if any run covered it.
//
// It does not guess. A package that is not named is ignored, and a percentage is never rounded up to its minimum. It reads
// sources only to find functions, below the folder of -C, and runs nothing.
package main
