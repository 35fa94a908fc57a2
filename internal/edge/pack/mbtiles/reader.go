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

// reader is one connection with its statements and memory. The caller that
// acquired it from the archive has exclusive use; only interrupt may be called
// concurrently.
type reader struct {
	// Set at construction.
	conn    *sqlite.Conn
	scratch *scratch
	locate  *sqlite.Stmt // the row of a tile's contents; nil if the contents are not in a rowid table
	fetch   *sqlite.Stmt // the contents themselves

	mu          sync.Mutex // guards what follows; held for a few instructions
	stop        chan struct{}
	stopped     bool
	interrupted bool // interrupted for good
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
	r.armInterrupt()
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
// interprets any character of the path.
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

// authorize decides what a statement may contain, the file's own views
// included: reading columns, and nothing else. No functions, since some make
// large values out of nothing; no recursion; no pragmas but two of ours.
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

// armInterrupt makes a channel whose closing interrupts the connection. The
// library keeps one goroutine waiting for it, so a new one is made only after
// use.
func (r *reader) armInterrupt() {
	r.mu.Lock()
	ended := r.interrupted
	if !ended {
		r.stop, r.stopped = make(chan struct{}), false
	}
	stop := r.stop
	r.mu.Unlock()
	if !ended {
		r.conn.SetInterrupt(stop)
	}
}

// interruptForGood interrupts the connection for good.
func (r *reader) interruptForGood() {
	r.mu.Lock()
	r.interrupted = true
	r.mu.Unlock()
	r.interrupt()
}

// interrupt interrupts the current query.
func (r *reader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.stopped = true
		close(r.stop)
	}
}

// runInterruptible runs work that ctx can interrupt. Afterwards the reader is
// ready for the next.
func (r *reader) runInterruptible(ctx context.Context, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, r.interrupt) //lockblock:allow it only interrupts the query that this very function waits for
	err := work()
	if !stop() {
		<-r.stopChannel() // interrupt may not have closed it yet
		r.armInterrupt()
		if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
			return ctx.Err()
		}
	}
	return err
}

func (r *reader) stopChannel() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop
}

func (r *reader) close() error {
	r.interruptForGood()
	return fault.Wrap("mbtiles.close", r.conn.Close())
}

// walk is each for a query that reads a view of the file: it checks SQLite's
// query plan first.
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
		f.Detail, f.Next = "a view of the file uses SQL that is not allowed", nextPlainTable
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		f.Detail = "the file is damaged"
	case sqlite.ResultError:
		f.Next = nextPlainTable
		f.Detail = fmt.Sprintf("the tables of the file are not those of MBTiles (%.120s)", sqliteMessage(err))
	case sqlite.ResultIOErr, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultPerm:
		f.Kind, f.Detail, f.Next = fault.Internal, fmt.Sprintf("the file could not be read (%v)", code), "Look at the disk and its log."
	default:
		f.Detail = "SQLite refuses the file: " + code.String()
	}
	return f
}

// sqliteMessage is the message of SQLite itself: "no such column: tile_row".
func sqliteMessage(err error) string {
	_, message, found := strings.Cut(err.Error(), "SQL logic error: ")
	if !found {
		return err.Error()
	}
	return message
}
