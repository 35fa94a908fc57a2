//go:build gates

package gates

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The recording in the README can be made again, and the one that is there was
// made with the same lines.
func TestTheRecording(t *testing.T) {
	needNetworks(t)
	file := filepath.Join(t.TempDir(), "recording.svg")
	readme, err := filepath.Abs("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "recording")
	mustRun(t, "go", "-C", "../tools", "build", "-o", program, "./cmd/recording")
	mustRun(t, "unshare", "--net", "bash", "-c", `ip link set lo up && exec "$@"`, "record", program, "-micronode", binary, "-readme", readme, "-out", file)
	now, before := recordedLines(t, file), recordedLines(t, "../docs/first-five-minutes.svg")
	if said := strings.Join(now, "\n"); !strings.Contains(said, "the same bytes") || !strings.Contains(said, "is ready") || !strings.Contains(said, "nothing aborted") {
		t.Errorf("the recording shows\n%s", said)
	}
	typed := func(lines []string) (list []string) {
		changing := regexp.MustCompile(`b3:[0-9a-f]+|127\.0\.0\.1:[0-9]+`)
		for _, one := range lines {
			if strings.HasPrefix(one, "$ ") {
				list = append(list, changing.ReplaceAllString(one, "…"))
			}
		}
		return list
	}
	if !slices.Equal(typed(now), typed(before)) {
		t.Errorf("docs/first-five-minutes.svg is old: type make recording\nit has %q, and now it is %q", typed(before), typed(now))
	}
	report(t, "the recording of the first five minutes", "can be made again", fmt.Sprintf("%d lines", len(now)))
}

// recordedLines are the lines of a recording, which must be whole.
func recordedLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder, inText := xml.NewDecoder(file), false
	for {
		token, err := decoder.Token()
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				lines = append(lines, string(token))
			}
		}
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}
