// Command lockblock enforces the rules of package micronode/tools/lockblock. It runs under go vet, which gives it the facts of
// every package below the one it reads:
//
//	go vet -vettool=$PWD/.build/lockblock ./...
//
// It also runs by itself on package patterns, more slowly, because it then loads everything from source:
//
//	lockblock ./internal/...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"micronode/tools/lockblock"
)

func main() { multichecker.Main(lockblock.Analyzer) }
