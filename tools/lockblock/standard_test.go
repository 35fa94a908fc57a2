package lockblock

import (
	"go/types"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// A name in the table that matches nothing is a mistake of ours or has left the standard library; either way it guards nothing.
func TestTableNamesWhatExists(t *testing.T) {
	byPath := loadKnown(t)
	for _, k := range knownWaits {
		if strings.Contains(k.pkg, ".") {
			continue // not the standard library
		}
		for _, name := range strings.Fields(k.names) {
			one := knownWait{k.pkg, k.recv, name, k.why}
			found := false
			for _, fn := range functionsOf(byPath[k.pkg]) {
				found = found || one.matches(fn)
			}
			if !found {
				t.Errorf("%s %s: no function %s", k.pkg, k.recv, name)
			}
		}
	}
}

// Under a lock one may look around, parse and format. These are the neighbours of functions that wait.
func TestTableLeavesTheHarmlessAlone(t *testing.T) {
	byPath := loadKnown(t)
	harmless := map[string]bool{
		"os.Getenv": true, "os.IsNotExist": true, "(*os.File).Name": true, "(*os.File).Fd": true,
		"net.JoinHostPort": true, "net.ParseIP": true, "(net.Conn).SetDeadline": true, "(net.Conn).RemoteAddr": true,
		"net/http.NewRequest": true, "(net/http.Header).Set": true, "(net/http.ResponseWriter).Header": true,
		"fmt.Sprintf": true, "fmt.Errorf": true, "log/slog.String": true, "(*log/slog.Logger).With": true,
		"time.Now": true, "(*sync.WaitGroup).Done": true, "(*sync.Cond).Broadcast": true, "io.LimitReader": true,
		"(*bufio.Reader).Buffered": true, "encoding/json.Marshal": true,
	}
	for _, pkg := range byPath {
		for _, fn := range functionsOf(pkg) {
			if harmless[fn.FullName()] {
				delete(harmless, fn.FullName())
				if why := known(fn); why != "" {
					t.Errorf("%s %s", fn.FullName(), why)
				}
			}
		}
	}
	for name := range harmless {
		t.Errorf("%s was not looked at", name)
	}
}

func loadKnown(t *testing.T) map[string]*types.Package {
	t.Helper()
	var paths []string
	for path := range knownByPackage {
		if !strings.Contains(path, ".") {
			paths = append(paths, path)
		}
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes}, paths...)
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*types.Package{}
	for _, pkg := range loaded {
		byPath[pkg.PkgPath] = pkg.Types
	}
	return byPath
}

// functionsOf lists the functions of a package and the methods of its types, interfaces included.
func functionsOf(pkg *types.Package) []*types.Func {
	var list []*types.Func
	for _, name := range pkg.Scope().Names() {
		switch obj := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			list = append(list, obj)
		case *types.TypeName:
			named, ok := obj.Type().(*types.Named)
			if !ok {
				continue
			}
			for i := range named.NumMethods() {
				list = append(list, named.Method(i))
			}
			if iface, ok := named.Underlying().(*types.Interface); ok {
				for i := range iface.NumMethods() {
					list = append(list, iface.Method(i))
				}
			}
		}
	}
	return list
}
