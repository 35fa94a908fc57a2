// Package jsoniter stands for github.com/json-iterator/go: what Bleve's package
// for shapes on a map calls of it, by encoding/json. The original uses
// reflection in a way that makes the linker keep every method of the program
// (ADR 81).
package jsoniter

import "encoding/json"

// ConfigCompatibleWithStandardLibrary is, here, the standard library.
var ConfigCompatibleWithStandardLibrary standard

type standard struct{}

func (standard) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (standard) Unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }
