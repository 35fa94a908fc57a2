package mbtiles

import (
	"context"
	"strings"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

const opCheck = "mbtiles.check"

// Check checks everything that Tile relies on: that the pages of the tables
// form sound trees, that every tile has valid coordinates and contents of a
// size that is served. It reads the whole file; ctx bounds the time. It uses
// one reader; tiles can be read meanwhile.
func (a *Archive) Check(ctx context.Context) error {
	if err := a.unchanged(); err != nil {
		return err
	}
	r, err := a.acquireReader(ctx)
	if err != nil {
		return fault.Wrap(opCheck, err)
	}
	defer a.releaseReader(r)
	err = r.runInterruptible(ctx, func() error {
		for _, table := range a.layout.tables {
			if err := r.quickCheck(table); err != nil {
				return err
			}
		}
		return a.checkTiles(r)
	})
	if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
		return errClosed
	}
	return sqlFault(opCheck, err)
}

// unchanged compares the open file with what it was at Open.
func (a *Archive) unchanged() error {
	changed, err := a.changed()
	if err != nil {
		return tileFault(err)
	}
	if changed {
		return refuse(opCheck, fault.NotReady, "Replace files by renaming a finished one over them, never by writing into them.", "the file changed while it was open")
	}
	return nil
}

// changed compares the size and the time of the file with those at Open.
func (a *Archive) changed() (bool, error) {
	now, err := a.file.Stat()
	if err != nil {
		return false, err
	}
	return now.Size() != a.stat.Size() || !now.ModTime().Equal(a.stat.ModTime()), nil
}

// quickCheck lets SQLite check the trees of a table and of its indices.
func (r *reader) quickCheck(table string) error {
	return r.each("PRAGMA quick_check("+quoted(table)+")", func(row *sqlite.Stmt) error {
		if finding := row.ColumnText(0); finding != "ok" {
			return damaged(opCheck, "table %s: %.200s", table, firstLine(finding))
		}
		return nil
	})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// checkTiles checks every row of tiles, and the type and size of its contents.
// SQLite takes both from the header of the row, without reading the contents.
func (a *Archive) checkTiles(r *reader) error {
	r.measuring = true
	defer func() { r.measuring = false }()
	query := "SELECT zoom_level, tile_column, tile_row, typeof(tile_data), octet_length(tile_data) FROM tiles"
	return r.walk(query, func(at *sqlite.Stmt) error {
		if _, _, _, ok := coordinates(at); !ok {
			return damaged(opCheck, "tiles has a row at zoom %.20q, column %.20q, row %.20q, where no tile can be",
				at.ColumnText(0), at.ColumnText(1), at.ColumnText(2))
		}
		switch kind, size := at.ColumnText(3), at.ColumnInt64(4); {
		case kind == "null":
			return nil
		case kind != "blob":
			return errNotBlob
		case size > a.options.Tile:
			return a.tooLarge(size)
		default:
			return nil
		}
	})
}
