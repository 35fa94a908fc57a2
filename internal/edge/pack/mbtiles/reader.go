package mbtiles

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"micronode/fault"
)

// reader is one connection with its statements and memory. Whoever has taken
// it from the archive uses it alone; interrupt alone may be called by anybody.
type reader struct {
	// Set at construction.
	conn    *sqlite.Conn
	scratch *scratch
	locate  *sqlite.Stmt // the row of a tile's contents; nil if the contents are not in a table with rows
	fetch   *sqlite.Stmt // the contents themselves

	mu      sync.Mutex // guards what follows; held for a few instructions
	stop    chan struct{}
	stopped bool
	ended   bool // interrupted for good
}

// limits keep a hostile schema from making SQLite work or allocate much. Views
// and generated columns are the only foreign SQL that ever runs.
var limits = map[sqlite.Limit]int32{
	sqlite.LimitSQLLength:         maxSchemaBytes,
	sqlite.LimitColumn:            200,
	sqlite.LimitExprDepth:         100,
	sqlite.LimitCompoundSelect:    20,
	sqlite.LimitVDBEOp:            25_000,
	sqlite.LimitFunctionArg:       20,
	sqlite.LimitAttached:          0,
	sqlite.LimitLikePatternLength: 100,
	sqlite.LimitVariableNumber:    10,
	sqlite.LimitTriggerDepth:      1,
	sqlite.LimitWorkerThreads:     0,
}

// settings make the connection read and nothing else: no writes, no temporary
// files, no memory maps (a file cut short would kill the process), no
// functions with effects in the file's own SQL, no indices made on the fly.
var settings = []string{
	"query_only = ON", "temp_store = MEMORY", "mmap_size = 0", "cache_size = -512",
	"trusted_schema = OFF", "cell_size_check = ON", "automatic_index = OFF",
}

func openReader(path string, length int64) (*reader, error) {
	conn, err := sqlite.OpenConn(uri(path), sqlite.OpenReadOnly, sqlite.OpenURI, sqlite.OpenPrivateCache)
	if err != nil {
		return nil, sqlFault(opOpen, err)
	}
	r := &reader{conn: conn}
	r.arm()
	if err := r.set(length); err != nil {
		_ = r.close() // nothing was written
		return nil, sqlFault(opOpen, err)
	}
	return r, nil
}

func (r *reader) set(length int64) error {
	for limit, value := range limits {
		r.conn.Limit(limit, value)
	}
	r.conn.Limit(sqlite.LimitLength, int32(length))
	for _, setting := range settings {
		if err := sqlitex.ExecuteTransient(r.conn, "PRAGMA "+setting, nil); err != nil {
			return err
		}
	}
	if err := r.conn.SetDefensive(true); err != nil {
		return err
	}
	return r.conn.SetAuthorizer(sqlite.AuthorizeFunc(authorize))
}

// uri names a file so that SQLite neither looks for journals and locks nor
// takes any character of the path for its own.
func uri(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "file:" + strings.Join(parts, "/") + "?mode=ro&immutable=1"
}

// authorize decides what may be in a statement, the file's own views included:
// columns are read, and that is all. No functions, since some make large
// values out of nothing; no recursion; no pragmas but two of ours.
func authorize(action sqlite.Action) sqlite.AuthResult {
	switch action.Type() {
	case sqlite.OpSelect, sqlite.OpRead:
		return sqlite.AuthResultOK
	case sqlite.OpPragma:
		if slices.Contains([]string{"table_xinfo", "quick_check"}, action.Pragma()) && action.Accessor() == "" {
			return sqlite.AuthResultOK
		}
	}
	return sqlite.AuthResultDeny
}

// arm makes a channel whose closing interrupts the connection. The library
// keeps one goroutine waiting for it, so it is made anew only after use.
func (r *reader) arm() {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.stop, r.stopped = make(chan struct{}), false
	}
	stop := r.stop
	r.mu.Unlock()
	if !ended {
		r.conn.SetInterrupt(stop)
	}
}

// end interrupts the connection for good.
func (r *reader) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.interrupt()
}

// interrupt ends what the connection is doing.
func (r *reader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.stopped = true
		close(r.stop)
	}
}

// within runs work that ctx can end. It leaves the reader ready for the next.
func (r *reader) within(ctx context.Context, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, r.interrupt) //lockblock:allow it only interrupts the query that this very function waits for
	err := work()
	if !release() {
		<-r.stopping() // interrupt may still be on its way
		r.arm()
		if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
			return ctx.Err()
		}
	}
	return err
}

func (r *reader) stopping() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop
}

func (r *reader) close() error {
	r.end()
	return fault.Wrap("mbtiles.close", r.conn.Close())
}

// walk is each for a query that reads a view of the file: only once SQLite has
// said how it would go about it.
func (r *reader) walk(query string, row func(*sqlite.Stmt) error) error {
	if _, err := r.plan(query); err != nil {
		return err
	}
	return r.each(query, row)
}

// each runs a query and calls row for every row of it.
func (r *reader) each(query string, row func(*sqlite.Stmt) error) error {
	stmt, _, err := r.conn.PrepareTransient(query)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return err
		}
		if err := row(stmt); err != nil {
			return err
		}
	}
}

// sqlFault gives an error of SQLite a kind.
func sqlFault(op string, err error) error {
	if fault.OpOf(err) == op {
		return err
	}
	if err == nil || errors.As(err, new(*fault.Error)) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(op, err)
	}
	f := &fault.Error{Op: op, Kind: fault.Malformed, Next: nextDamaged, Err: err}
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultTooBig:
		f.Detail = "a value or a view of the file is larger than the cap"
	case sqlite.ResultAuth:
		f.Detail, f.Next = "a view of the file uses SQL that is not allowed", nextPlain
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		f.Detail = "the file is damaged"
	case sqlite.ResultError:
		f.Next = nextPlain
		f.Detail = fmt.Sprintf("the tables of the file are not those of MBTiles (%.120s)", lastPart(err))
	case sqlite.ResultIOErr, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultPerm:
		f.Kind, f.Detail, f.Next = fault.Internal, fmt.Sprintf("the file could not be read (%v)", code), "Look at the disk and its log."
	default:
		f.Detail = "SQLite refuses the file: " + code.String()
	}
	return f
}

// lastPart is what SQLite itself said: "no such column: tile_row".
func lastPart(err error) string {
	_, message, found := strings.Cut(err.Error(), "SQL logic error: ")
	if !found {
		return err.Error()
	}
	return message
}
