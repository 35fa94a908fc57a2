package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sample = `package shop

type Item struct {
	Name  string ` + "`json:\"name\"`" + `
	price int
}

func (i *Item) Price() int { return i.price }

func Open(name string) (*Item, error) { return nil, nil }

const Most = 5

func hidden() {}
`

func TestTheListKeepsWhatIsExported(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module shop\n\ngo 1.26\n")
	write("shop.go", sample)
	if err := run(folder, true, "api.txt", []string{"."}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "api.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(got), "## shop\n\n")
	want := strings.Join([]string{"const Most untyped int", "func Open(name string) (*Item, error)", "method (*Item) Price() int", "type Item struct", `type Item struct: Name string json:"name"`, ""}, "\n")
	if list != want {
		t.Errorf("the list is\n%swant\n%s", list, want)
	}
	for title, change := range map[string][2]string{
		"a field is gone":     {"Name  string", "name  string"},
		"a method has more":   {"Price() int", "Price(tax int) int"},
		"a constant is gone":  {"Most", "most"},
		"a function is there": {"hidden", "Hidden"},
	} {
		write("shop.go", strings.ReplaceAll(sample, change[0], change[1]))
		if err := run(folder, false, "api.txt", []string{"."}); err == nil {
			t.Errorf("%s: nobody says so", title)
		}
	}
	write("shop.go", strings.ReplaceAll(sample, "hidden", "secret"))
	if err := run(folder, false, "api.txt", []string{"."}); err != nil {
		t.Errorf("what nobody sees has changed: %v", err)
	}
}
