package config

import (
	"fmt"
	"time"
)

// autoWord is the word that leaves a value to the node.
const autoWord = "auto"

// Duration is the standard library's. In a file it is a text with units, "5s"
// or "1200ms"; a bare number is rejected, because its unit would be a guess.
type Duration = time.Duration

// Auto is a value, or the word "auto", which leaves the value to the node. Its
// zero value is a configured zero, not auto: zero means zero.
type Auto[T bool | int | Duration | Size] struct {
	Auto  bool
	Value T // what was configured; without meaning if Auto
}

// Or returns the configured value, or what auto stands for at the moment.
func (a Auto[T]) Or(auto T) T {
	if a.Auto {
		return auto
	}
	return a.Value
}

// String is for logs: the value or the word.
func (a Auto[T]) String() string {
	if a.Auto {
		return autoWord
	}
	return fmt.Sprint(a.Value)
}
