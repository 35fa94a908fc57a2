package pack

import (
	"encoding/json"
	"regexp"

	"micronode/fault"
)

// semver matches a version in the form that TileJSON requires.
var semver = regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)

// document is TileJSON 3.0.0, with its fields in order.
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

// tileJSON encodes the description of a pack. The same pack and the same URL
// give the same bytes.
func (p packInfo) tileJSON(tileURL string) ([]byte, error) {
	text, err := json.Marshal(document{
		TileJSON: "3.0.0", Tiles: []string{tileURL}, Scheme: "xyz",
		Name: p.name, Description: p.description, Version: p.version, Attribution: p.attribution, Legend: p.legend,
		MinZoom: p.minZoom, MaxZoom: p.maxZoom, Bounds: p.bounds, Center: p.center, VectorLayers: p.layers,
	})
	if err != nil {
		return nil, fault.Wrap("pack.tilejson", err)
	}
	return text, nil
}
