package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"sync"
)

// sources are the parsed files that all platforms share. A checker does not change what it reads.
type sources struct {
	positions *token.FileSet
	mu        sync.Mutex
	files     map[string]func() (*ast.File, error)
}

func newSources() *sources {
	return &sources{positions: token.NewFileSet(), files: map[string]func() (*ast.File, error){}}
}

// file parses a file once, and keeps of functions that nobody will check only that they have a body.
func (s *sources) file(name string, bodies bool) (*ast.File, error) {
	s.mu.Lock()
	parse := s.files[name]
	if parse == nil {
		parse = sync.OnceValues(func() (*ast.File, error) {
			file, err := parser.ParseFile(s.positions, name, nil, parser.SkipObjectResolution)
			if err == nil && !bodies {
				dropBodies(file)
			}
			return file, err
		})
		s.files[name] = parse
	}
	s.mu.Unlock()
	return parse()
}

func dropBodies(file *ast.File) {
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
			function.Body = &ast.BlockStmt{Lbrace: function.Body.Lbrace, Rbrace: function.Body.Rbrace}
		}
	}
}
