package mbtiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite/vfs"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"micronode/fault"
)

// reader is one connection with its statements. The caller that acquired it
// from the archive has exclusive use; only interrupt may be called
// concurrently.
type reader struct {
	// Set at construction.
	file     *file
	vfs      *vfs.FS
	conn     *sqlite.Conn
	fetch    *sqlite.Stmt // the contents of a tile
	fetchRow *sqlite.Stmt // the contents in a row; nil if the tiles cannot be listed by rows
	awake    *sqlite.Stmt // always between its rows: see armInterrupt; nil until the schema is read

	measuring bool // our statements may call functions; changed by the one that uses the reader

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
// The first two matter while SQLite reads the schema, which a later one makes
// it do. The transaction at the end spares every query one of its own.
var settings = []string{
	"PRAGMA cell_size_check = ON", "PRAGMA trusted_schema = OFF", "PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY",
	"PRAGMA mmap_size = 0", "PRAGMA cache_size = -512", "PRAGMA automatic_index = OFF",
	"BEGIN",
}

// openReader opens a connection that may read no more of the file than a schema
// has, until accept lifts that.
func openReader(handle *os.File) (*reader, error) {
	r := &reader{file: &file{handle: handle, budget: schemaBudget}}
	name, system, err := vfs.New(r.file)
	if err != nil {
		return nil, fault.Wrap(opOpen, err)
	}
	r.vfs = system
	// immutable: no locks, and no journals.
	r.conn, err = sqlite.OpenConn("file:"+fileName+"?mode=ro&immutable=1&vfs="+name, sqlite.OpenReadOnly, sqlite.OpenURI, sqlite.OpenPrivateCache)
	if err != nil {
		_ = r.vfs.Close() // nothing is open in it
		return nil, sqlFault(opOpen, err)
	}
	r.armInterrupt()
	return r, nil
}

// set applies limits and settings. SQLite reads the schema meanwhile.
func (r *reader) set() error {
	for limit, value := range limits {
		r.conn.Limit(limit, value)
	}
	r.conn.Limit(sqlite.LimitLength, maxSchemaBytes)
	if err := r.conn.SetDefensive(true); err != nil {
		return err
	}
	for _, statement := range settings {
		if err := sqlitex.ExecuteTransient(r.conn, statement, nil); err != nil {
			return err
		}
	}
	if err := r.conn.SetAuthorizer(sqlite.AuthorizeFunc(r.authorize)); err != nil {
		return err
	}
	awake, err := r.conn.Prepare("SELECT 1 UNION ALL SELECT 2")
	if err != nil {
		return err
	}
	r.awake = awake
	_, err = awake.Step()
	return err
}

// accept lifts the bounds that hold for the schema.
func (r *reader) accept(length int64) {
	r.file.budget = unlimited
	r.conn.Limit(sqlite.LimitLength, int32(length))
}

// authorize decides what a statement may contain, the file's own views
// included: reading columns, and nothing else. No functions, since some make
// large values out of nothing, except those that measure, in our own
// statements; no recursion; no pragmas but two of ours.
func (r *reader) authorize(action sqlite.Action) sqlite.AuthResult {
	ours := action.Accessor() == ""
	switch action.Type() {
	case sqlite.OpSelect, sqlite.OpRead:
		return sqlite.AuthResultOK
	case sqlite.OpPragma:
		if ours && slices.Contains([]string{"table_xinfo", "quick_check"}, action.Pragma()) {
			return sqlite.AuthResultOK
		}
	case sqlite.OpFunction:
		if ours && r.measuring {
			return sqlite.AuthResultOK
		}
	}
	return sqlite.AuthResultDeny
}

// armInterrupt makes a channel whose closing interrupts the connection. The
// library keeps one goroutine waiting for it, so a new one is made only after
// use.
//
// A query that begins forgets an interrupt that came before it, unless another
// is under way: so an interrupt between the library's look at the channel and
// the first step of a query would be lost, and the query might never end. The
// statement awake is under way as long as the channel is armed.
func (r *reader) armInterrupt() {
	r.mu.Lock()
	ended := r.interrupted
	if !ended {
		r.stop, r.stopped = make(chan struct{}), false
	}
	stop := r.stop
	r.mu.Unlock()
	if !ended {
		r.conn.SetInterrupt(stop) // ends awake, too, which forgets the last interrupt
		if r.awake != nil {
			_, _ = r.awake.Step() // fails only if it is interrupted already, and whoever looks at the channel sees that
		}
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
	err := r.run(work)
	if !stop() {
		<-r.stopChannel() // interrupt may not have closed it yet
		r.armInterrupt()
		if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
			return ctx.Err()
		}
	}
	return err
}

// run runs work, and explains why it could not read the file if so.
func (r *reader) run(work func() error) error {
	err := work()
	if failure := r.file.takeFailure(); failure != nil && err != nil {
		return failure
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
	return fault.Wrap("mbtiles.close", errors.Join(r.conn.Close(), r.vfs.Close()))
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
