package mbtiles

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

const where = " WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3 LIMIT 1"

// layout is how the tiles of a file are reached. It is found out once, by the
// first reader; the others prepare the same statements.
type layout struct {
	fetch   string   // the query for the contents
	indexed bool     // an index leads to a tile
	tables  []string // those that Check looks at

	rows   string // the tiles with the row of their contents in place of the contents; "" if these have no rows
	root   uint32 // the root page of the table with the contents
	column int    // the contents' place in its rows
}

func (l *layout) locate() string { return "SELECT tile_data FROM (" + l.rows + ")" + where }

// explore finds the layout of a file.
func explore(r *reader, s *schema) (l layout, err error) {
	l.fetch = "SELECT tile_data FROM tiles" + where
	if l.indexed, err = r.plan(l.fetch); err != nil {
		return layout{}, err
	}
	l.tables = append(s.behind("tiles"), s.behind("metadata")...)
	return l, l.shorten(r, s)
}

// plan asks SQLite how it would run a tile's query. Whatever sorts or gathers
// rows in memory first is refused: that memory would have no bound. It says
// whether an index leads to the tile.
func (r *reader) plan(query string) (indexed bool, err error) {
	scans, searches := false, false
	err = r.each("EXPLAIN QUERY PLAN "+query, func(row *sqlite.Stmt) error {
		step := row.ColumnText(3)
		switch {
		case strings.Contains(step, "VIRTUAL TABLE"):
			return refuse(opOpen, fault.Malformed, nextPlain, "the view tiles reads a virtual table")
		case strings.HasPrefix(step, "SCAN "):
			scans = true
		case strings.HasPrefix(step, "SEARCH "):
			searches = searches ||
				strings.Contains(step, "zoom_level=?") && strings.Contains(step, "tile_column=?") && strings.Contains(step, "tile_row=?")
		case step != "COMPOUND QUERY" && step != "LEFT-MOST SUBQUERY" && step != "UNION ALL":
			return refuse(opOpen, fault.Malformed, nextPlain, "the view tiles gathers rows before it answers (%s)", step)
		}
		return nil
	})
	return searches && !scans, err
}

// shorten finds the table that holds the contents, if it is one with rows and
// its records can be read without SQLite. It leaves rows empty otherwise.
func (l *layout) shorten(r *reader, s *schema) error {
	table, _ := s.find("tiles")
	rows := "SELECT zoom_level, tile_column, tile_row, _rowid_ AS tile_data FROM tiles"
	if table.kind == "view" {
		view := table
		table, _ = s.find(r.origin("SELECT tile_data FROM tiles"))
		rows = rowQuery(view, table.name)
	}
	// The word is in the text of a table WITHOUT ROWID, and of one with a
	// column that is called like the number of the row.
	if rows == "" || table.kind != "table" || strings.Contains(strings.ToLower(table.sql), "rowid") {
		return nil
	}
	place, err := r.stored(table.name, "tile_data")
	if err != nil || place < 0 {
		return err
	}
	short := layout{rows: rows}
	if indexed, err := r.plan(short.locate()); err != nil || indexed != l.indexed {
		return nil // the rewritten view is not what the view is: SQLite reads the contents then
	}
	l.rows, l.root, l.column = rows, table.root, place
	return nil
}

// origin is the table from which the only column of a query comes.
func (r *reader) origin(query string) string {
	stmt, _, err := r.conn.PrepareTransient(query)
	if err != nil {
		return ""
	}
	defer stmt.Finalize()
	return stmt.ColumnTableName(0)
}

// stored is the place of a column in the records of a table; -1 if the table
// has generated columns, whose places differ.
func (r *reader) stored(table, column string) (int, error) {
	place, position := -1, 0
	generated := false
	err := r.each("PRAGMA table_xinfo("+quoted(table)+")", func(row *sqlite.Stmt) error {
		generated = generated || row.ColumnInt64(6) != 0
		if strings.EqualFold(row.ColumnText(1), column) {
			place = position
		}
		position++
		return nil
	})
	if generated {
		place = -1
	}
	return place, err
}

// prepare makes the statements of a layout and the memory for its pages.
func (r *reader) prepare(l *layout, p *pager) (err error) {
	if r.fetch, err = r.conn.Prepare(l.fetch); err != nil || l.rows == "" {
		return err
	}
	r.scratch = p.scratch()
	r.locate, err = r.conn.Prepare(l.locate())
	return err
}
