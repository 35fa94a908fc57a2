package house

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestDecisionsAreNumberedOnce: decisions are referred to by number, so no two
// have the same, and the heading repeats the number of the file's name.
func TestDecisionsAreNumberedOnce(t *testing.T) {
	files, err := filepath.Glob("../../docs/adr/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal("no decisions found:", err)
	}
	seen := map[int]string{}
	for _, file := range files {
		if filepath.Base(file) == "README.md" {
			continue
		}
		digits, _, _ := strings.Cut(filepath.Base(file), "-")
		number, err := strconv.Atoi(digits)
		if err != nil {
			t.Errorf("%s: its name begins with a number: 0012-what-was-decided.md", file)
			continue
		}
		if other, taken := seen[number]; taken {
			t.Errorf("%s and %s have the same number: give the newer one the next that is free", other, file)
		}
		seen[number] = file
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if heading := "# " + strconv.Itoa(number) + ". "; !strings.HasPrefix(string(text), heading) {
			t.Errorf("%s: its first line does not begin with %q", file, heading)
		}
	}
}
