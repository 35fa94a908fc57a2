package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
)

type Embedded struct {
	N int `toml:"n" doc:"A number."`
}

// Invalid structs are found by the first test that loads them, and the panic
// says what to change.
func TestStructsThatAreMistakes(t *testing.T) {
	for want, load := range map[string]func(){
		"must be a struct of sections, not int":                       try(5),
		"has no settings":                                             try(struct{}{}),
		"struct { N int }.N needs a tag like toml":                    try(struct{ N int }{}),
		`.N needs a tag doc:"…"`:                                      try(noDoc{}),
		"lower case, with single underscores":                         try(upper{}),
		".B needs a tag like toml:\"read_timeout\"":                   try(double{}),
		"has the type []time.Time, which":                             try(foreign{}),
		"has the type map[string]string, which a setting cannot have": try(mapped{}),
		"is embedded; give it a field name":                           try(outer{}),
		".B has the same key as another field":                        try(twice{}),
		"refuse: a text out of on, off":                               try(badEnum{Mode: "maybe"}),
		"has an enum, which is for texts":                             try(numbered{}),
		"refuse: an integer, not below zero":                          try(badSign{N: -1}),
		"MICRO_URL is a reserved name and cannot be a key":            try(taken{}),
		"MICRO_EDITOR is a reserved name and cannot be a key":         tryFrom(editor{}, config.Sources{Reserved: []string{"MICRO_EDITOR"}}),
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "config: ") || !strings.Contains(got, want) {
					t.Errorf("panic %s", got)
				}
			}()
			load()
			t.Error("it was taken")
		})
	}
}

func try[T any](defaults T) func() { return tryFrom(defaults, config.Sources{}) }

func tryFrom[T any](defaults T, from config.Sources) func() {
	return func() { _, _ = config.Load(defaults, from) }
}

type noDoc struct {
	N int `toml:"n"`
}
type upper struct {
	N int `toml:"N" doc:"x"`
}
type double struct {
	B int `toml:"a__b" doc:"x"`
}
type foreign struct {
	At []time.Time `toml:"at" doc:"x"`
}
type mapped struct {
	M map[string]string `toml:"m" doc:"x"`
}
type outer struct {
	Embedded `toml:"inner" doc:"x"`
}
type twice struct {
	A int `toml:"n" doc:"x"`
	B int `toml:"n" doc:"x"`
}
type badEnum struct {
	Mode string `toml:"mode" doc:"x" enum:"on,off"`
}
type badSign struct {
	N int `toml:"n" doc:"x"`
}
type taken struct {
	URL string `toml:"url" doc:"x"`
}
type editor struct {
	Editor string `toml:"editor" doc:"x"`
}
type numbered struct {
	N int `toml:"n" doc:"x" enum:"0,1"`
}
