package mbtiles

import (
	"encoding/binary"
	"regexp"
	"strings"
	"unicode/utf8"

	"micronode/fault"
)

// SQLite reads the whole schema of a file into memory before it answers
// anything, and expands views into each other without a bound. So the schema is
// read here first, within these bounds.
const (
	maxObjects     = 400
	maxSchemaBytes = 1 << 20
	maxSchemaPages = 2000
)

// object is one row of sqlite_schema.
type object struct {
	kind string // table, index, view, trigger
	name string
	root uint32
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

// readSchema walks the table at page one.
func readSchema(p *pager) (schema, error) {
	w := schemaWalk{pager: p, run: p.scratch().run}
	if err := w.walk(1, 0); err != nil {
		return schema{}, fault.Wrap(opOpen, err)
	}
	return w.schema, w.schema.check()
}

type schemaWalk struct {
	pager  *pager
	run    []byte
	schema schema
	pages  int
	bytes  int64
}

func (w *schemaWalk) walk(number uint32, depth int) error {
	if w.pages++; w.pages > maxSchemaPages || depth > maxDepth {
		return errSchemaSize
	}
	s := &scratch{page: make([]byte, w.pager.pageSize), run: w.run}
	if err := w.pager.read(number, s.page); err != nil {
		return err
	}
	n, err := w.pager.node(number, s.page)
	if err != nil {
		return err
	}
	for i := range n.cells {
		if n.leaf {
			err = w.add(&n, i, s)
		} else {
			var child uint32
			if child, _, err = n.child(i); err == nil {
				err = w.walk(child, depth+1)
			}
		}
		if err != nil {
			return err
		}
	}
	if n.leaf {
		return nil
	}
	return w.walk(n.rightmost(), depth+1)
}

var errSchemaSize = refuse(opOpen, fault.Malformed, "Copy metadata and tiles alone into a new file.",
	"the schema is larger than %d objects or %d bytes", maxObjects, maxSchemaBytes)

func (w *schemaWalk) add(n *node, index int, s *scratch) error {
	rec, err := w.pager.record(n, index)
	if err != nil {
		return err
	}
	if w.bytes += rec.length; w.bytes > maxSchemaBytes || len(w.schema.objects) == maxObjects {
		return errSchemaSize
	}
	payload, err := w.pager.payload(rec, s)
	if err != nil {
		return err
	}
	o, err := parseObject(record{row: rec.row, length: rec.length, local: payload})
	if err != nil {
		return err
	}
	w.schema.objects = append(w.schema.objects, o)
	return nil
}

// parseObject reads a row (type, name, tbl_name, rootpage, sql).
func parseObject(rec record) (object, error) {
	var texts [5]string
	var root uint32
	for i := range texts {
		serial, at, size, err := rec.column(i)
		if err != nil {
			return object{}, err
		}
		value := rec.local[at : at+size]
		if i == 3 {
			root = rootPage(serial, value)
		} else {
			texts[i] = string(value)
		}
		if !utf8.Valid(value) && i != 3 {
			return object{}, damaged(opOpen, "the schema is not UTF-8")
		}
	}
	return object{kind: texts[0], name: texts[1], root: root, sql: texts[4]}, nil
}

// rootPage reads an integer of up to four bytes; a view has none.
func rootPage(serial uint64, value []byte) uint32 {
	if serial == 9 {
		return 1
	}
	if serial == 0 || serial > 4 {
		return 0
	}
	var wide [4]byte
	copy(wide[4-len(value):], value)
	return binary.BigEndian.Uint32(wide[:])
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
