package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type pairsConfig struct {
	Edge pairsEdge `toml:"edge" doc:"A section."`
}

type pairsEdge struct {
	Sites []string `toml:"sites" pairs:"true" doc:"Hosts and what they show."`
	Other string   `toml:"other" doc:"Another setting."`
}

// A list of pairs may be written as a table, whose keys may have dots.
func TestPairsAreATable(t *testing.T) {
	want := []string{"docs.example.org=name:docs", "plain=b3:x"}
	for name, text := range map[string]string{
		"a table":      "[edge]\nother = \"x\"\n[edge.sites]\n\"docs.example.org\" = \"name:docs\"\nplain = \"b3:x\"\n",
		"inline":       "[edge]\nsites = { plain = \"b3:x\", \"docs.example.org\" = \"name:docs\" }\n",
		"a list":       "[edge]\nsites = [\"docs.example.org=name:docs\", \"plain=b3:x\"]\n",
		"a number":     "[edge.sites]\nplain = 1\n",
		"list of them": "[[edge.sites]]\nplain = \"b3:x\"\n",
	} {
		file := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(pairsConfig{Edge: pairsEdge{Sites: []string{}}}, Sources{File: file})
		switch {
		case name == "a number" || name == "list of them":
			if err == nil || !strings.Contains(err.Error(), "sites") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || !slices.Equal(loaded.Value.Edge.Sites, want):
			t.Errorf("%s: %v, %v", name, loaded, err)
		}
	}
}
