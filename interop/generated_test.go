package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	_ "github.com/oapi-codegen/runtime" // what generated clients are built with

	"micronode/b3"
)

// A client that is generated from a node's description compiles, and works with
// that node. Nothing of it is kept: the files exist for the compiler alone.
func TestGeneratedClient(t *testing.T) {
	folder := t.TempDir()
	binary := filepath.Join(folder, "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := startIndexNode(t, binary)
	document := fetchOpenAPI(t, n)
	code, err := codegen.Generate(document, codegen.Configuration{PackageName: "api", Generate: codegen.GenerateOptions{Client: true, Models: true}})
	if err != nil {
		t.Fatal(err)
	}
	api := filepath.Join(folder, "api.go")
	if err := os.WriteFile(api, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "generated", "api", "api.go"): api,
		filepath.Join(here, "generated", "main.go"):       filepath.Join(here, "testdata", "generated_client.go.txt"),
	}})
	list, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "program")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", program, "./generated").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program, n.url).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "put 201 " + b3.Of([]byte("generated")).String() + ` 9
get 200 generated
name 200 docs
resolve 200 true
mail 201 200 render
acknowledge 204
wrong 400 Malformed true
status 200 true true
`
	if got := string(out); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("it printed\n%s\nand not\n%s", got, want)
	}
}
