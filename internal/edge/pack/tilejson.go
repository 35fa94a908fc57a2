package pack

import (
	"encoding/json"
	"regexp"

	"micronode/fault"
)

// semantic is a version as TileJSON wants it.
var semantic = regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)

// document is TileJSON 3.0.0, in the order in which it is written.
type document struct {
	TileJSON     string      `json:"tilejson"`
	Tiles        []string    `json:"tiles"`
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Version      string      `json:"version,omitempty"`
	Attribution  string      `json:"attribution,omitempty"`
	Legend       string      `json:"legend,omitempty"`
	Scheme       string      `json:"scheme"`
	MinZoom      uint8       `json:"minzoom"`
	MaxZoom      uint8       `json:"maxzoom"`
	Bounds       *[4]float64 `json:"bounds,omitempty"`
	Center       *[3]float64 `json:"center,omitempty"`
	VectorLayers []layer     `json:"vector_layers,omitzero"`
}

// tileJSON writes the description of a pack. The same pack and the same address
// give the same bytes.
func (a about) tileJSON(tileURL string) ([]byte, error) {
	text, err := json.Marshal(document{
		TileJSON: "3.0.0", Tiles: []string{tileURL}, Scheme: "xyz",
		Name: a.name, Description: a.description, Version: a.version, Attribution: a.attribution, Legend: a.legend,
		MinZoom: a.minZoom, MaxZoom: a.maxZoom, Bounds: a.bounds, Center: a.center, VectorLayers: a.layers,
	})
	if err != nil {
		return nil, fault.Wrap("pack.tilejson", err)
	}
	return text, nil
}
