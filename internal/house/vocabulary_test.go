package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const glossaryWords = 60 // a longer list is not read

// deadLetters is the term of the field in which a retired word lives on.
var deadLetters = regexp.MustCompile(`(?i)dead\s?letters?`)

// TestOneVocabulary holds the code to the glossary of ARCHITECTURE.md: a type
// that has the name of a word is declared only where the glossary says, and no
// exported name and no package comment uses a retired word.
func TestOneVocabulary(t *testing.T) {
	words, retired := readGlossary(t)
	if len(words) == 0 || len(words) > glossaryWords {
		t.Errorf("the glossary has %d words, want 1 to %d", len(words), glossaryWords)
	}
	declared := map[string][]string{}
	for _, file := range productFiles(t) {
		for _, name := range typeNames(file.syntax) {
			if _, taken := words[name]; taken && !slices.Contains(declared[name], file.pkg) {
				declared[name] = append(declared[name], file.pkg)
			}
		}
		for _, word := range wordsOf(deadLetters.ReplaceAllString(file.syntax.Doc.Text(), "")) {
			if slices.Contains(retired, word) {
				t.Errorf("%s: the package comment says %q, which ARCHITECTURE.md retired", file.path, word)
			}
		}
		for _, name := range exportedNames(file.syntax) {
			for _, word := range wordsOf(deadLetters.ReplaceAllString(name, "")) {
				if slices.Contains(retired, word) {
					t.Errorf("%s: %s uses %q, which ARCHITECTURE.md retired", file.path, name, word)
				}
			}
		}
	}
	for word, want := range words {
		slices.Sort(declared[word])
		if !slices.Equal(declared[word], want) {
			t.Errorf("type %s is declared in %v; the glossary of ARCHITECTURE.md says %v: choose another name, or explain this one there",
				word, declared[word], want)
		}
	}
}

// TestWordsOf: a name is split where a reader would split it.
func TestWordsOf(t *testing.T) {
	for name, want := range map[string]string{
		"queueServer": "queue server", "HTTPServer": "http server", "shelf of letters": "shelf of letters", "OpenShelf2": "open shelf",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%q has the words %q, want %q", name, got, want)
		}
	}
}

// readGlossary returns the words with the packages that declare a type of that
// name, and the retired words with their plurals.
func readGlossary(t *testing.T) (words map[string][]string, retired []string) {
	t.Helper()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Glossary\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no glossary")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	words = map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		word := strings.TrimSpace(cells[0])
		if len(cells) != 3 || word == "word" || strings.HasPrefix(word, "-") {
			continue
		}
		if _, twice := words[word]; twice {
			t.Errorf("the glossary has %s twice", word)
		}
		words[word] = nil
		if list := strings.TrimSpace(cells[2]); list != "" {
			words[word] = strings.Split(list, ", ")
		}
	}
	_, list, found := strings.Cut(section, "\nRetired, because")
	if !found {
		t.Fatal("the glossary has no list of retired words")
	}
	_, list, _ = strings.Cut(list, ":")
	list, _, _ = strings.Cut(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(list, ""), ".")
	for _, word := range wordsOf(list) {
		retired = append(retired, word, word+"s")
	}
	return words, append(retired, "shelves")
}

// productFile is a file of the product, without tests and suites of tests.
type productFile struct {
	path, pkg string
	syntax    *ast.File
}

func productFiles(t *testing.T) (files []productFile) {
	t.Helper()
	set := token.NewFileSet()
	for _, root := range []string{"b3", "client", "cmd", "fault", "internal"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, entry fs.DirEntry, err error) error {
			folder := filepath.Base(filepath.Dir(path))
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(folder, "test") ||
				strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
				return err
			}
			syntax, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			path = strings.TrimPrefix(filepath.ToSlash(path), "../../")
			pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "internal/")
			files = append(files, productFile{path, pkg, syntax})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// typeNames lists the types that a file declares for its package.
func typeNames(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		if general, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range general.Specs {
				if declared, ok := spec.(*ast.TypeSpec); ok {
					names = append(names, declared.Name.Name)
				}
			}
		}
	}
	return names
}

// exportedNames lists what a file shows to other packages, with fields and
// methods.
func exportedNames(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name.Name)
			return false
		case *ast.TypeSpec:
			names = append(names, n.Name.Name)
		case *ast.ValueSpec:
			names = append(names, identifiers(n.Names)...)
		case *ast.Field:
			names = append(names, identifiers(n.Names)...)
		}
		return true
	})
	return slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
}

func identifiers(list []*ast.Ident) (names []string) {
	for _, one := range list {
		names = append(names, one.Name)
	}
	return names
}

// wordsOf splits prose and names into lower-case words.
func wordsOf(text string) []string {
	runes := []rune(text)
	var spaced strings.Builder
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(spaced.String(), func(r rune) bool { return !unicode.IsLetter(r) })
}
