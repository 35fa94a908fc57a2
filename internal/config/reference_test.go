package config_test

import (
	"bytes"
	"strings"
	"testing"

	"micronode/internal/config"
	"micronode/internal/testkit"
)

func TestTheReference(t *testing.T) {
	got := config.Reference(defaults())
	testkit.Golden(t, "testdata/config.md", got)
	if !bytes.Equal(got, config.Reference(defaults())) {
		t.Error("the second time it is another text")
	}
}

func TestTheReferenceOfSettingsOutsideOfSections(t *testing.T) {
	got := string(config.Reference(flat{Profile: "a|b"}))
	if !strings.Contains(got, "\n## Outside of any section\n\n| key") || !strings.Contains(got, "| `\"a\\|b\"` |") {
		t.Errorf("got\n%s", got)
	}
	if strings.Contains(got, "seeds") {
		t.Error("a section about names in other documents, of which there are none")
	}
}
