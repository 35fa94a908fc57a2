package config

import "strconv"

// Layer is where a value comes from. A later layer overrides an earlier one.
type Layer string

// The layers, in the order in which they are applied.
const (
	LayerDefault     Layer = "default"
	LayerFile        Layer = "file"
	LayerEnvironment Layer = "env"
	LayerFlag        Layer = "flag"
)

// Origin is exactly where a value comes from.
type Origin struct {
	Layer Layer
	Name  string // the path, the variable or the flag
	Line  int    // in a file
}

// String is how an origin is shown: "default", "file:/etc/micronode.toml:12",
// "env:MICRO_HTTP__ADDR", "flag:--http".
func (o Origin) String() string {
	text := string(o.Layer)
	if o.Name != "" {
		text += ":" + o.Name
	}
	if o.Line > 0 {
		text += ":" + strconv.Itoa(o.Line)
	}
	return text
}

// MarshalText makes an origin a text in JSON.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
