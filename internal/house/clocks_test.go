package house

import (
	"fmt"
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

	"micronode/internal/testkit"
)

// realClock lists the test files that sleep or judge elapsed time on the
// machine's own clock, or read how much memory it uses, and why nothing else can show what they show. That it
// is the simplest way is never a reason. The list only shrinks.
var realClock = map[string]string{
	"cmd/micronode/script_test.go":              "a poll between two runs of a program; nothing is judged by the time",
	"internal/edge/fill/hostile_test.go":        "the origins in its table run in the bubble of TestOriginsThatTakeTheirTime",
	"internal/house/generated_test.go":          "a poll until another node finds an object; nothing is judged by the time",
	"internal/index/delegated/endpoint_test.go": "the handlers in its tables run in the bubble of askEndpoint",
	"internal/index/fresh_test.go":              "the functions in its table run in the bubble of the same test",
	"internal/ingress/overrun_test.go":          "the handlers of TestALateAnswerLeavesAGoodConnection run in its bubbles",
	"internal/ingress/warm_test.go":             "its handler is slow for what the bubbles of lanes_test.go request",
	"internal/overlay/session/bench_test.go":    "a peer refuses pings that come too often, so the next ones wait; nothing is judged",
	"internal/overlay/session/dialer_test.go":   "the bound of a rate grows with the time that has passed, so a slow machine only loosens it",
}

// realClocks is how many files realClock may have. It is only ever lowered.
const realClocks = 9

// A test fails only when something is broken. One that sleeps until things
// settle, or that judges how long something took, fails on a busy machine too:
// it belongs into a synctest bubble, where time is what the test says, or
// into gates and bench, which know the machine's noise. The same goes for the
// memory in use, which testkit.Memory reads in the gates only. New tests that
// do otherwise fail here.
func TestNoTestDependsOnTheMachine(t *testing.T) {
	used := map[string]bool{}
	for folder, files := range testFiles(t) {
		for _, found := range clockUses(files) {
			if used[found.file] = true; realClock[found.file] == "" {
				t.Errorf("%s:%d: %s outside a synctest bubble: move it into one, let a fake decide the moment, or make a gate of it",
					found.file, found.line, found.what)
			}
		}
		if len(files) == 0 {
			t.Errorf("%s has no tests", folder)
		}
	}
	if len(realClock) > realClocks {
		t.Errorf("realClock has %d files: it may have %d, and only ever fewer", len(realClock), realClocks)
	}
	for file := range realClock {
		if !used[file] {
			t.Errorf("%s needs the machine's clock no more: take it off the list", file)
		}
	}
}

// TestClockUses: what is found in code, and what is not.
func TestClockUses(t *testing.T) {
	for _, try := range []struct{ name, code, want string }{
		{"a sleep", `func TestX(t *testing.T) { time.Sleep(1) }`, "time.Sleep"},
		{"a sleep in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"a sleep beside a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }`, "time.Sleep"},
		{"a test that is a bubble's body", `func TestX(t *testing.T) { synctest.Test(t, body) }; func body(t *testing.T) { time.Sleep(1) }`, ""},
		{"a helper in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { help() }) }; func help() { time.Sleep(1) }`, ""},
		{"a helper of both", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { help() }); help() }; func help() { time.Sleep(1) }`, "time.Sleep"},
		{"a helper that nobody needs", `func help() { time.Sleep(1) }`, ""},
		{"a bubble of our own", `func TestX(t *testing.T) { bubble(t, func(t *testing.T) { time.Sleep(1) }) }; func bubble(t *testing.T, run func(*testing.T)) { synctest.Test(t, func(t *testing.T) { run(t) }) }`, ""},
		{"not a bubble of our own", `func TestX(t *testing.T) { bubble(t, func(t *testing.T) { time.Sleep(1) }) }; func bubble(t *testing.T, run func(*testing.T)) { run(t); synctest.Test(t, func(t *testing.T) { }) }`, "time.Sleep"},
		{"a bubble of our own inside of a test", `func TestX(t *testing.T) { bubble := func(run func()) { synctest.Test(t, func(t *testing.T) { run() }) }; bubble(func() { time.Sleep(1) }) }`, ""},
		{"a method that has the name of another", `func TestX(t *testing.T) { a{}.rest(); synctest.Test(t, func(t *testing.T) { b{}.rest() }) }; type a struct{}; type b struct{}; func (b) rest() { time.Sleep(1) }`, ""},
		{"a method of a field", `func TestX(t *testing.T) { a := a{}; a.b.rest() }; type a struct{ b b }; type b struct{}; func (b) rest() { time.Sleep(1) }`, "time.Sleep"},
		{"a fake's method", `func TestX(t *testing.T) { use(slow{}) }; type slow struct{}; func (slow) Read(p []byte) (int, error) { time.Sleep(1); return 0, nil }`, "time.Sleep"},
		{"a fake's method in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { use(slow{}) }) }; type slow struct{}; func (slow) Read(p []byte) (int, error) { time.Sleep(1); return 0, nil }`, ""},
		{"a method that is called", `func TestX(t *testing.T) { n := start(); n.rest() }; func (n *node) rest() { time.Sleep(1) }; func start() *node { return &node{} }; type node struct{}`, "time.Sleep"},
		{"a method that a bubble calls", `func TestX(t *testing.T) { start(); synctest.Test(t, func(t *testing.T) { start().rest() }) }; func (n *node) rest() { time.Sleep(1) }; func start() *node { return &node{} }; type node struct{}`, ""},
		{"a comparison", `func TestX(t *testing.T) { if time.Since(start) > 1 {} }`, "a judgement of elapsed time"},
		{"a comparison through a variable", `func TestX(t *testing.T) { took := time.Since(start).Seconds(); if 1 < took {} }`, "a judgement of elapsed time"},
		{"a comparison of two moments", `func TestX(t *testing.T) { if time.Now().Sub(start) > 1 {} }`, "a judgement of elapsed time"},
		{"a comparison in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { if time.Since(start) > 1 {} }) }`, ""},
		{"elapsed time that is shown", `func TestX(t *testing.T) { t.Log(time.Since(start)) }`, ""},
		{"a reading of the heap", `func TestX(t *testing.T) { var m runtime.MemStats; runtime.ReadMemStats(&m); use(m.HeapAlloc) }`, "a reading of the memory in use"},
		{"what was allocated", `func TestX(t *testing.T) { var m runtime.MemStats; runtime.ReadMemStats(&m); use(m.TotalAlloc) }`, ""},
		{"a benchmark", `func BenchmarkX(b *testing.B) { time.Sleep(1) }`, ""},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", "package x\n"+try.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, found := range clockUses([]testFile{{path: "x_test.go", syntax: file, line: func(token.Pos) int { return 1 }}}) {
			got += found.what
		}
		if got != try.want {
			t.Errorf("%s: found %q, want %q", try.name, got, try.want)
		}
	}
}

// A test judges memory only in the gates, so each that does is one of them.
func TestMemoryIsJudgedByTheGates(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\nMEMORY_GATES := ")
	list, _, _ = strings.Cut(list, "\n")
	gates := strings.Split(list, "|")
	for _, files := range testFiles(t) {
		for _, file := range files {
			for _, decl := range file.syntax.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(fn.Name.Name, "Test") || file.path == "internal/testkit/testkit_test.go" {
					continue
				}
				if mentions(fn, map[string]bool{"WatchMemory": true, "MemoryGate": true}) {
					if at := slices.Index(gates, fn.Name.Name); at >= 0 {
						gates = slices.Delete(gates, at, at+1)
					} else {
						t.Errorf("%s: %s judges memory, and is not among the MEMORY_GATES of the Makefile", file.path, fn.Name.Name)
					}
				}
			}
		}
	}
	if len(gates) > 0 {
		t.Errorf("MEMORY_GATES of the Makefile has %v, which judge no memory", gates)
	}
}

// What is named in the Makefile is there: a name that no test has any more
// would run nothing, and pass.
func TestTheSmokeHasItsTests(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	testkit.Must(t, err)
	for list, folder := range map[string]string{"SMOKE_GATES": "gates", "SMOKE_INTEROP": "interop"} {
		there := ""
		files, _ := filepath.Glob(filepath.Join("../..", folder, "*_test.go")) // the pattern is right
		for _, path := range files {
			source, err := os.ReadFile(path)
			testkit.Must(t, err)
			there += string(source)
		}
		line := regexp.MustCompile(`(?m)^` + list + ` *:= (.+)$`).FindStringSubmatch(string(makefile))
		if line == nil {
			t.Fatalf("the Makefile has no %s", list)
		}
		for _, name := range strings.Split(line[1], "|") {
			if !strings.Contains(there, "func "+name+"(t *testing.T)") {
				t.Errorf("%s of the Makefile names %s, which %s/ does not have", list, name, folder)
			}
		}
	}
}

// Every package looks for goroutines that its tests leave behind.
func TestEveryPackageLooksForLeaks(t *testing.T) {
	for folder, files := range testFiles(t) {
		if strings.HasPrefix(folder, "tools") || folder == "internal/testkit" {
			continue
		}
		if !slices.ContainsFunc(files, func(file testFile) bool {
			return mentions(file.syntax, map[string]bool{"goleak": true}) || mentions(file.syntax, map[string]bool{"testkit": true}) && mentions(file.syntax, map[string]bool{"TestMain": true})
		}) {
			t.Errorf("%s: no TestMain looks for goroutines that its tests leave behind: goleak.VerifyTestMain, or testkit.Main", folder)
		}
	}
}

// testFile is one _test.go file.
type testFile struct {
	path   string
	syntax *ast.File
	line   func(token.Pos) int
}

// testFiles returns the test files of the product and of its tools by folder.
func testFiles(t *testing.T) map[string][]testFile {
	t.Helper()
	set, folders := token.NewFileSet(), map[string][]testFile{}
	for _, root := range []string{"b3", "client", "cmd", "fault", "internal", "models", "tools"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.ToSlash(path), "/testdata/") {
				return err
			}
			syntax, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			folder := filepath.Dir(name)
			folders[folder] = append(folders[folder], testFile{name, syntax, func(at token.Pos) int { return set.Position(at).Line }})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return folders
}

// clockUse is one place that needs the machine's clock.
type clockUse struct {
	file string
	line int
	what string
}

// clockUses finds what the tests of a package do on the machine's clock. It
// follows names from the test functions: a helper that only bubbles mention
// runs in bubbles.
func clockUses(files []testFile) (found []clockUse) {
	funcs, methods := map[string][]*ast.FuncDecl{}, map[string][]*ast.FuncDecl{} // by name; by receiver
	home, types := map[*ast.FuncDecl]testFile{}, map[string][]ast.Expr{}
	for _, file := range files {
		for _, decl := range file.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				home[fn] = file
				funcs[fn.Name.Name] = append(funcs[fn.Name.Name], fn)
				if fn.Recv != nil {
					methods[receiverName(fn)] = append(methods[receiverName(fn)], fn)
				}
			}
			if general, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range general.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						types[named.Name.Name] = append(types[named.Name.Name], named.Type)
					}
				}
			}
		}
	}
	bubbles := bubbleNames(files)

	// Where each name is mentioned anywhere, to tell a method that the tests
	// call from one that is called through an interface.
	called := map[string]bool{}
	for _, file := range files {
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				called[call.Sel.Name] = true
			}
			return true
		})
	}

	// A helper is reached when code that is reached mentions it; a method when
	// its type is mentioned too, and it is called or belongs to an interface.
	var queue []*ast.FuncDecl
	reached, seen := map[*ast.FuncDecl]bool{}, map[string]bool{}
	reach := func(fn *ast.FuncDecl) {
		if !reached[fn] {
			reached[fn] = true
			queue = append(queue, fn)
		}
	}
	var mention func(name string)
	mention = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, fn := range append(slices.Clone(funcs[name]), methods[name]...) {
			if fn.Recv == nil || seen[receiverName(fn)] && (seen[fn.Name.Name] || !called[fn.Name.Name]) {
				reach(fn)
			}
		}
		for _, inner := range types[name] { // what it is made of
			ast.Inspect(inner, func(n ast.Node) bool {
				if part, ok := n.(*ast.Ident); ok {
					mention(part.Name)
				}
				return true
			})
		}
	}
	for name, list := range funcs {
		if entry := strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") || name == "init"; entry {
			for _, fn := range list {
				reach(fn)
			}
		}
	}
	for _, file := range files { // what package variables hold runs on the machine's clock
		for _, decl := range file.syntax.Decls {
			if general, ok := decl.(*ast.GenDecl); ok && general.Tok == token.VAR {
				found = append(found, inspectRealTime(general, file, bubbles, mention)...)
			}
		}
	}
	for len(queue) > 0 {
		fn := queue[0]
		queue = queue[1:]
		found = append(found, inspectRealTime(fn, home[fn], bubbles, mention)...)
	}
	slices.SortFunc(found, func(a, b clockUse) int {
		return strings.Compare(fmt.Sprintf("%s:%6d", a.file, a.line), fmt.Sprintf("%s:%6d", b.file, b.line))
	})
	return slices.Compact(found)
}

// inspectRealTime looks through one declaration, except what it hands to a
// bubble, and tells mention of each name that it uses.
func inspectRealTime(root ast.Node, file testFile, bubbles map[string]bool, mention func(string)) (found []clockUse) {
	elapsed := map[string]bool{} // variables that hold elapsed time
	report := func(n ast.Node, what string) { found = append(found, clockUse{file.path, file.line(n.Pos()), what}) }
	var inspect func(n ast.Node) bool
	inspect = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name := calledName(n); bubbles[name] {
				for _, argument := range n.Args {
					if _, body := argument.(*ast.FuncLit); !body && !(name == "synctest.Test" && isIdent(argument)) {
						ast.Inspect(argument, inspect)
					}
				}
				mention(strings.TrimPrefix(name, "synctest.")) // our own bubbles run code of their own outside of it
				return false
			}
		case *ast.SelectorExpr:
			if selectorName(n) == "time.Sleep" {
				report(n, "time.Sleep")
			}
			if slices.Contains([]string{"HeapAlloc", "HeapInuse", "HeapObjects", "HeapSys", "StackInuse"}, n.Sel.Name) {
				report(n, "a reading of the memory in use")
			}
			mention(n.Sel.Name)
		case *ast.Ident:
			mention(n.Name)
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) && readsClock(n.Rhs[i]) {
					elapsed[name.Name] = true
				}
			}
		case *ast.BinaryExpr:
			comparison := slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ}, n.Op)
			if comparison && (readsClock(n.X) || readsClock(n.Y) || mentions(n.X, elapsed) || mentions(n.Y, elapsed)) {
				report(n, "a judgement of elapsed time")
			}
		}
		return true
	}
	ast.Inspect(root, inspect)
	return found
}

// bubbleNames are the functions that run each function they are handed in a
// bubble: synctest.Test, and those of a package's own that hand theirs to it
// and call them nowhere else.
func bubbleNames(files []testFile) map[string]bool {
	names := map[string]bool{"synctest.Test": true}
	for grown := true; grown; {
		before := len(names)
		for _, file := range files {
			ast.Inspect(file.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv == nil && n.Body != nil && handsOnlyToBubbles(n.Type, n.Body, names) {
						names[n.Name.Name] = true
					}
				case *ast.AssignStmt: // a helper inside of a test
					if name, ok := n.Lhs[0].(*ast.Ident); ok && len(n.Rhs) == 1 {
						if helper, ok := n.Rhs[0].(*ast.FuncLit); ok && handsOnlyToBubbles(helper.Type, helper.Body, names) {
							names[name.Name] = true
						}
					}
				}
				return true
			})
		}
		grown = len(names) > before
	}
	return names
}

// handsOnlyToBubbles tells whether a function hands each function that it gets
// to a bubble, and uses it nowhere else.
func handsOnlyToBubbles(signature *ast.FuncType, body *ast.BlockStmt, bubbles map[string]bool) bool {
	functions := map[string]bool{}
	for _, param := range signature.Params.List {
		if _, is := param.Type.(*ast.FuncType); is {
			for _, name := range param.Names {
				functions[name.Name] = true
			}
		}
	}
	inside, outside := false, false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && bubbles[calledName(call)] {
			for _, argument := range call.Args {
				inside = inside || mentions(argument, functions)
			}
			return false
		}
		if name, ok := n.(*ast.Ident); ok && functions[name.Name] {
			outside = true
		}
		return true
	})
	return inside && !outside
}

// readsClock tells whether an expression computes how much time has passed.
func readsClock(expr ast.Expr) (reads bool) {
	ast.Inspect(expr, func(n ast.Node) bool {
		if _, body := n.(*ast.FuncLit); body {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok {
			name := calledName(call)
			sub, _ := call.Fun.(*ast.SelectorExpr)
			reads = reads || name == "time.Since" || name == "time.Until" || sub != nil && sub.Sel.Name == "Sub" && calledNow(sub.X)
		}
		return true
	})
	return reads
}

func calledNow(expr ast.Expr) bool {
	call, ok := expr.(*ast.CallExpr)
	return ok && calledName(call) == "time.Now"
}

// mentions tells whether a node uses one of the names.
func mentions(node ast.Node, names map[string]bool) (found bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && names[name.Name]
		return true
	})
	return found
}

// calledName is the name of a called function, with its package if it has one.
func calledName(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return selectorName(fn)
	case *ast.IndexExpr:
		return calledName(&ast.CallExpr{Fun: fn.X})
	}
	return ""
}

func isIdent(expr ast.Expr) bool {
	_, is := expr.(*ast.Ident)
	return is
}

// receiverName is the type that a method belongs to.
func receiverName(fn *ast.FuncDecl) string {
	of := fn.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.IndexListExpr:
			of = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
