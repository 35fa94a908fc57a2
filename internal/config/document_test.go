package config_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"micronode/internal/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestTheReference(t *testing.T) {
	const golden = "testdata/config.md"
	got := config.Document(defaults())
	if *update {
		write(t, golden, string(got))
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s says something else; look at the difference, then run the test with -update. Got\n%s", golden, got)
	}
	if !bytes.Equal(got, config.Document(defaults())) {
		t.Error("the second time it is another text")
	}
}

func TestTheReferenceOfSettingsOutsideOfSections(t *testing.T) {
	got := string(config.Document(flat{Profile: "a|b"}))
	if !strings.Contains(got, "\n## Outside of any section\n\n| key") || !strings.Contains(got, "| `\"a\\|b\"` |") {
		t.Errorf("got\n%s", got)
	}
	if strings.Contains(got, "seeds") {
		t.Error("a chapter about names of the seeds, of which there are none")
	}
}
