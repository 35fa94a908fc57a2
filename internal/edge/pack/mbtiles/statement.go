package mbtiles

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

const tileWhere = " WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3 LIMIT 1"

// layout is how the tiles of a file are found. The first reader determines it
// once; the others prepare the same statements.
type layout struct {
	fetch   string   // the query for the contents of a tile, by its coordinates
	indexed bool     // an index leads to a tile
	tables  []string // those that Check checks

	rows     string // the tiles with the row of their contents instead of the contents; "" if these have no rows
	fetchRow string // the query for the contents in a row
}

// findLayout finds the layout of a file.
func findLayout(r *reader, s *schema) (l layout, err error) {
	l.fetch = "SELECT tile_data FROM tiles" + tileWhere
	if l.indexed, err = r.plan(l.fetch); err != nil {
		return layout{}, err
	}
	l.tables = append(s.baseTables("tiles"), s.baseTables("metadata")...)
	l.findRows(r, s)
	return l, nil
}

// plan asks SQLite for its plan of a tile's query. A plan that first sorts or
// gathers rows in memory is refused: that memory would have no bound. It
// reports whether an index leads to the tile.
func (r *reader) plan(query string) (indexed bool, err error) {
	scans, searches := false, false
	err = r.each("EXPLAIN QUERY PLAN "+query, func(row *sqlite.Stmt) error {
		step := row.ColumnText(3)
		switch {
		case strings.Contains(step, "VIRTUAL TABLE"):
			return refuse(opOpen, fault.Malformed, nextPlainTable, "the view tiles reads a virtual table")
		case strings.HasPrefix(step, "SCAN "):
			scans = true
		case strings.HasPrefix(step, "SEARCH "):
			searches = searches ||
				strings.Contains(step, "zoom_level=?") && strings.Contains(step, "tile_column=?") && strings.Contains(step, "tile_row=?")
		case step != "COMPOUND QUERY" && step != "LEFT-MOST SUBQUERY" && step != "UNION ALL":
			return refuse(opOpen, fault.Malformed, nextPlainTable, "the view tiles gathers rows before it answers (%s)", step)
		}
		return nil
	})
	return searches && !scans, err
}

// findRows finds the table that holds the contents, if that has rows by which
// the tiles can be listed in memory. It leaves rows empty otherwise.
func (l *layout) findRows(r *reader, s *schema) {
	table, _ := s.find("tiles")
	rows := "SELECT zoom_level, tile_column, tile_row, _rowid_ AS tile_data FROM tiles"
	if table.kind == "view" {
		view := table
		table, _ = s.find(r.sourceTable("SELECT tile_data FROM tiles"))
		rows = rowQuery(view, table.name)
	}
	// The word is in the text of a table WITHOUT ROWID, and of one with a
	// column that is named rowid.
	if rows == "" || table.kind != "table" || strings.Contains(strings.ToLower(table.sql), "rowid") || r.computes(table.name) {
		return
	}
	if indexed, err := r.plan("SELECT tile_data FROM (" + rows + ")" + tileWhere); err != nil || indexed != l.indexed {
		return // the rewritten view differs from the original
	}
	l.rows, l.fetchRow = rows, "SELECT tile_data FROM "+quoted(table.name)+" WHERE _rowid_ = ?1"
}

// sourceTable is the table from which the only column of a query comes.
func (r *reader) sourceTable(query string) string {
	stmt, _, err := r.conn.PrepareTransient(query)
	if err != nil {
		return ""
	}
	defer stmt.Finalize()
	return stmt.ColumnTableName(0)
}

// computes reports whether a table has generated columns. What these cost is up
// to the file, so they are read where a caller can interrupt.
func (r *reader) computes(table string) (generated bool) {
	err := r.each("PRAGMA table_xinfo("+quoted(table)+")", func(row *sqlite.Stmt) error {
		generated = generated || row.ColumnInt64(6) != 0
		return nil
	})
	return generated || err != nil
}

// prepare prepares the statements of a layout.
func (r *reader) prepare(l *layout) (err error) {
	if r.fetch, err = r.conn.Prepare(l.fetch); err != nil || l.rows == "" {
		return err
	}
	r.fetchRow, err = r.conn.Prepare(l.fetchRow)
	return err
}
