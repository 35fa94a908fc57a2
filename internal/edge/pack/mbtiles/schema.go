package mbtiles

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

// SQLite reads the whole schema of a file into memory before it answers
// anything, and expands views into each other without a bound. So it may read
// only so much of the file before the schema is accepted.
const (
	maxObjects     = 400
	maxSchemaBytes = 1 << 20
	schemaBudget   = 2 * maxSchemaBytes // its pages are not full
)

// object is one row of sqlite_schema.
type object struct {
	kind string // table, index, view, trigger
	name string
	root int64 // its first page; zero for a view and for a virtual table
	sql  string
}

// schema is what a file declares.
type schema struct{ objects []object }

// find looks up a table or view by its name, whose case SQLite ignores in
// ASCII.
func (s *schema) find(name string) (object, bool) {
	for _, o := range s.objects {
		if (o.kind == "table" || o.kind == "view") && strings.EqualFold(o.name, name) {
			return o, true
		}
	}
	return object{}, false
}

// baseTables lists the tables that a view may read, or the table itself.
func (s *schema) baseTables(name string) (tables []string) {
	shown, _ := s.find(name)
	if shown.kind == "table" {
		return []string{shown.name}
	}
	for _, o := range s.objects {
		if o.kind == "table" && o.root != 0 && strings.Contains(strings.ToLower(shown.sql), strings.ToLower(o.name)) {
			tables = append(tables, o.name)
		}
	}
	return tables
}

var errSchemaSize = refuse(opOpen, fault.Malformed, "Copy metadata and tiles alone into a new file.",
	"the schema is larger than %d objects or %d bytes", maxObjects, maxSchemaBytes)

// readSchema reads the schema and checks it.
func readSchema(r *reader) (*schema, error) {
	s, total := &schema{}, 0
	err := r.each("SELECT type, name, rootpage, sql FROM sqlite_schema", func(row *sqlite.Stmt) error {
		o := object{kind: row.ColumnText(0), name: row.ColumnText(1), root: row.ColumnInt64(2), sql: row.ColumnText(3)}
		if total += len(o.kind) + len(o.name) + len(o.sql); total > maxSchemaBytes || len(s.objects) == maxObjects {
			return errSchemaSize
		}
		if !utf8.ValidString(o.kind) || !utf8.ValidString(o.name) || !utf8.ValidString(o.sql) {
			return damaged(opOpen, "the schema is not UTF-8")
		}
		s.objects = append(s.objects, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, s.check()
}

// schemaFault is why SQLite could not read the schema.
func schemaFault(err error) error {
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultTooBig {
		return errSchemaSize
	}
	return err
}

const nextPlainTable = "Write the tiles into a table: CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob), with a unique index on the first three."

// check refuses missing tables, and views that could grow without a bound while
// SQLite expands them: a view of views, or with named subqueries, can double at
// every step.
func (s *schema) check() error {
	for _, name := range []string{"metadata", "tiles"} {
		o, found := s.find(name)
		if !found {
			return refuse(opOpen, fault.Malformed, "Check that the file is an MBTiles archive; it needs the tables metadata and tiles.",
				"a SQLite file, but not MBTiles: there is no table %s", name)
		}
		if o.kind == "table" && o.root == 0 {
			return refuse(opOpen, fault.Malformed, nextPlainTable, "%s is a virtual table", name)
		}
		if o.kind == "view" && s.unbounded(o) {
			return refuse(opOpen, fault.Malformed, nextPlainTable, "the view %s is built on other views or on WITH", name)
		}
	}
	return nil
}

var words = regexp.MustCompile(`[\pL\pN_$]+`)

// unbounded checks every word of a view's text, wherever it is. That refuses a
// few harmless views, but needs no SQL parser.
func (s *schema) unbounded(view object) bool {
	others := map[string]bool{"with": true}
	for _, o := range s.objects {
		if o.kind != "view" || strings.EqualFold(o.name, view.name) {
			continue
		}
		if words.FindString(o.name) != o.name {
			return true // a name that needs quotes cannot be searched for as a word
		}
		others[strings.ToLower(o.name)] = true
	}
	for _, word := range words.FindAllString(view.sql, -1) {
		if others[strings.ToLower(word)] {
			return true
		}
	}
	return false
}

var (
	viewSelect = regexp.MustCompile(`(?is)^\s*CREATE\s+VIEW\s+\S+\s+AS\s+(SELECT\s.*?)[\s;]*$`)
	tileColumn = regexp.MustCompile(`(?i)(\bAS\s+)?(\b\w+\.)?\btile_data\b(\s+AS\s+tile_data\b)?`)
	notPlain   = regexp.MustCompile(`(?i)\b(DISTINCT|GROUP|ORDER|UNION|EXCEPT|INTERSECT|LIMIT|VALUES|OVER|CASE)\b|["'` + "`" + `\[]|--|/\*`)
)

// rowQuery rewrites the view that joins an index of tiles with their contents
// into one that returns the row of the contents instead of the contents. It
// knows the plain SELECT that every writer of such files uses, and returns ""
// for anything else. The table is the one that SQLite says the contents come
// from.
func rowQuery(view object, table string) string {
	parts := viewSelect.FindStringSubmatch(view.sql)
	if parts == nil || notPlain.MatchString(parts[1]) || strings.Count(strings.ToLower(parts[1]), "select") != 1 {
		return ""
	}
	uses := tileColumn.FindAllStringSubmatch(parts[1], -1)
	if len(uses) != 1 || uses[0][1] != "" {
		return ""
	}
	owner := uses[0][2]
	if owner == "" {
		owner = quoted(table) + "."
	}
	return tileColumn.ReplaceAllLiteralString(parts[1], owner+"_rowid_ AS tile_data")
}
