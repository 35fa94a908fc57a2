package blocking

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

type S struct {
	mu    sync.Mutex
	rw    sync.RWMutex
	ch    chan int
	wg    sync.WaitGroup
	once  sync.Once
	cond  *sync.Cond
	file  *os.File
	w     io.Writer
	conn  net.Conn
	sum   hash.Hash
	log   *slog.Logger
	hook  func()
	ask   func(context.Context) error
	other Asker
	odd   interface{ Ask(context.Context) }
	plain func(error)
}

type Asker interface {
	Ask(ctx context.Context) error
	Peek() int
}

func (s *S) send() {
	s.mu.Lock()
	s.ch <- 1 // want `sends on a channel while holding S.mu \(locked on line \d+\): no lock is held across a wait, so take what you need under the lock, unlock, then do this`
	s.mu.Unlock()
	s.ch <- 2
}

func (s *S) receive() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return <-s.ch // want `receives from a channel while holding S.mu`
}

func (s *S) ranges() {
	s.rw.RLock()
	defer s.rw.RUnlock()
	for range s.ch { // want `receives from a channel while holding S.rw`
	}
}

func (s *S) selects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select { // want `waits in a select without a default while holding S.mu`
	case <-s.ch:
	case s.ch <- 1:
	}
	select {
	case <-s.ch:
	case s.ch <- 1:
	default:
	}
	close(s.ch)
}

func (s *S) forever() {
	s.mu.Lock()
	select {} // want `waits in a select without a default`
}

func (s *S) waits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(1)              // want `sleeps \(time.Sleep\) while holding S.mu`
	s.wg.Wait()                // want `waits for a WaitGroup`
	s.cond.Wait()              // want `waits on a Cond`
	exec.Command("true").Run() // want `waits for a process \(\(\*exec.Cmd\).Run\)`
	s.once.Do(func() {
		<-s.ch // want `receives from a channel while holding S.mu`
	})
	s.once.Do(func() { s.wg.Done() })
}

func (s *S) inputOutput(r *http.Request, rw http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	os.Remove("x")         // want `touches the disk \(os.Remove\)`
	s.file.Sync()          // want `touches the disk \(\(\*os.File\).Sync\)`
	net.Dial("tcp", "")    // want `uses the network \(net.Dial\)`
	http.Get("x")          // want `uses the network \(http.Get\)`
	s.w.Write(nil)         // want `reads or writes a stream \(\(io.Writer\).Write\)`
	s.conn.Read(nil)       // want `uses the network \(\(net.Conn\).Read\)`
	rw.Write(nil)          // want `uses the network`
	io.ReadAll(r.Body)     // want `reads or writes a stream \(io.ReadAll\)`
	fmt.Fprintln(s.w, "x") // want `reads or writes a stream \(fmt.Fprintln\)`
	fmt.Println("x")       // want `reads or writes the terminal`
	slog.Info("x")         // want `writes a log \(slog.Info\)`
	s.log.Info("x")        // want `writes a log`
	log.Print("x")         // want `writes a log`
	sync := s.file.Sync
	sync() // want `touches the disk`
	_ = os.Getenv("x")
	_ = net.JoinHostPort("a", "b")
	_ = fmt.Sprint("x")
	_ = s.log.With("a", 1)
	s.conn.SetDeadline(time.Time{})
}

type quiet struct{ n int }

func (q *quiet) Write(b []byte) (int, error) { q.n += len(b); return len(b), nil }

type loud struct{ ch chan int }

func (l *loud) Write(b []byte) (int, error) { l.ch <- 1; return len(b), nil }

// Memory is no I/O.
func (s *S) memory(src *S) {
	var buf bytes.Buffer
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(&buf, "x")
	json.NewEncoder(&buf).Encode(1)
	io.Copy(s.sum, &buf)
	io.Copy(io.Discard, &buf)
	s.sum.Write(nil)
	bufio.NewWriter(&buf).Flush()
	fmt.Fprintln(&quiet{}, "x")
	fmt.Fprintln(&loud{}, "x")     // want `reads or writes a stream`
	bufio.NewWriter(s.w).Flush()   // want `reads or writes a stream`
	json.NewEncoder(s.w).Encode(1) // want `reads or writes a stream`
	var w io.Writer = &buf
	if src == nil {
		w = s.w
	}
	fmt.Fprintln(w) // want `reads or writes a stream`
	var r io.Reader = &buf
	if src == nil {
		r = bytes.NewReader(nil)
	}
	io.ReadAll(r)
	unzip, _ := gzip.NewReader(&buf)
	io.ReadAll(unzip)
	fmt.Fprintln(s.file, "x")             // want `reads or writes a stream`
	fmt.Fprintln(wrapped{s.file}, "x")    // want `reads or writes a stream`
	for w := io.Writer(&buf); ; w = s.w { // a loop that is followed once
		fmt.Fprintln(w) // want `reads or writes a stream`
	}
}

type wrapped struct{ *os.File }

func (s *S) branches(early bool) {
	s.mu.Lock()
	if early {
		s.mu.Unlock()
		<-s.ch
		return
	}
	<-s.ch // want `receives from a channel while holding S.mu`
	s.mu.Unlock()
	<-s.ch
}

func (s *S) sometimes(locked bool) {
	if locked {
		s.mu.Lock()
	}
	<-s.ch // want `receives from a channel while holding S.mu`
}

func (s *S) loop() {
	for {
		s.mu.Lock()
		s.mu.Unlock()
		<-s.ch
	}
}

func (s *S) try() {
	if s.mu.TryLock() {
		<-s.ch // want `receives from a channel while holding S.mu`
		s.mu.Unlock()
		return
	}
	<-s.ch
}

func (s *S) tryNot() {
	ok := s.mu.TryLock()
	if !ok {
		<-s.ch
		return
	}
	<-s.ch // want `receives from a channel while holding S.mu`
}

func (s *S) exits(err error) {
	s.mu.Lock()
	if err != nil {
		os.Exit(1)
	} else {
		s.mu.Unlock()
	}
	<-s.ch
}

// A literal is read by itself.
func (s *S) literals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = func() { s.mu.Lock() }
	_ = func() { <-s.ch }
	go func() { <-s.ch }() // want `go statement outside supervise and flow`
	func() {
		<-s.ch // want `receives from a channel while holding S.mu`
	}()
	f := func() {
		<-s.ch // want `receives from a channel while holding S.mu`
	}
	f()
	slices.SortFunc([]int{1}, func(a, b int) int {
		<-s.ch // want `receives from a channel while holding S.mu`
		return a - b
	})
}

func (s *S) literalUnlocks() {
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		<-s.ch
	}()
	<-s.ch // want `receives from a channel while holding S.mu`
}

func (s *S) deferredOrder() {
	defer s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
}

func (s *S) deferredUnderLock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wg.Wait() // want `waits for a WaitGroup`
}

var global struct {
	sync.Mutex
	ch chan int
}

func globals() {
	global.Lock()
	<-global.ch // want `receives from a channel while holding global.Mutex`
	global.Unlock()
}

func locals(ch chan int) {
	var mu sync.Mutex
	other := &sync.Mutex{}
	mu.Lock()
	<-ch // want `receives from a channel while holding mu`
	mu.Unlock()
	other.Lock()
	<-ch // want `receives from a channel while holding the mutex of line \d+`
	other.Unlock()
	<-ch
	defer func() { other.Unlock() }()
}

func lockers(l sync.Locker, ch chan int) {
	l.Lock()
	<-ch // want `receives from a channel while holding l `
	l.Unlock()
	<-ch
}

type shards struct {
	all  []sync.Mutex
	byID map[int]*sync.Mutex
	ch   chan int
	s    S
}

func (s *shards) index(i int) {
	s.all[i].Lock()
	<-s.ch // want `receives from a channel while holding shards.all`
	s.all[i].Unlock()
	<-s.ch
	s.byID[i].Lock()
	<-s.ch // want `receives from a channel while holding shards.byID`
	s.byID[i].Unlock()
	if mu, ok := s.byID[i]; ok {
		mu.Lock()
		<-s.ch // want `receives from a channel while holding shards.byID`
		mu.Unlock()
	}
	for _, mu := range s.byID {
		mu.Lock()
		<-s.ch // want `receives from a channel while holding shards.byID`
		mu.Unlock()
	}
	s.pick(i).Lock()
	<-s.ch // want `receives from a channel while holding the lock returned by \(\*shards\).pick`
	s.pick(i).Unlock()
	<-s.ch
}

func (s *shards) pick(i int) *sync.Mutex { return &s.all[i] }

func (s *S) either(which bool) {
	mu := &s.mu
	if which {
		mu = new(sync.Mutex)
	}
	mu.Lock()
	<-s.ch // want `receives from a channel while holding the mutex of line \d+`
	mu.Unlock()
	<-s.ch
}

type holder struct{ mu *sync.Mutex }

type Lock sync.Mutex

func give() holder            { return holder{} }
func giveTwo() [2]*sync.Mutex { return [2]*sync.Mutex{} }

// A lock is found through values, slices, conversions and interfaces.
func (s *S) traced(l *shards, any any, lock *Lock, i int) {
	give().mu.Lock()
	<-s.ch // want `receives from a channel while holding holder.mu`
	give().mu.Unlock()
	giveTwo()[i].Lock()
	<-s.ch // want `receives from a channel while holding the lock returned by giveTwo`
	giveTwo()[i].Unlock()
	l.all[1:][0].Lock()
	<-s.ch // want `receives from a channel while holding shards.all`
	l.all[1:][0].Unlock()
	var locker sync.Locker = &s.mu
	locker.Lock()
	<-s.ch // want `receives from a channel while holding S.mu`
	locker.Unlock()
	any.(*sync.Mutex).Lock()
	<-s.ch // want `receives from a channel while holding any `
	any.(sync.Locker).Unlock()
	any.(interface {
		sync.Locker
		Extra()
	}).Lock()
	sync.Locker(any.(interface {
		sync.Locker
		Extra()
	})).Unlock()
	<-s.ch
	(*sync.Mutex)(lock).Lock()
	<-s.ch // want `receives from a channel while holding lock `
	(*sync.Mutex)(lock).Unlock()
	mu := &s.mu
	if i > 0 {
		mu = &l.s.mu
	}
	mu.Lock()
	<-s.ch // want `receives from a channel while holding S.mu`
	mu.Unlock()
	s.rw.RLocker()
	<-s.ch
}

// Who takes a context may wait.
func (s *S) unknown(ctx context.Context, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask(ctx)       // want `calls a function value, which takes a context, so it may wait while holding S.mu`
	s.other.Ask(ctx) // want `calls \(Asker\).Ask, which takes a context, so it may wait while holding S.mu`
	_ = s.other.Peek()
	s.odd.Ask(ctx) // want `calls Ask, which takes a context, so it may wait`
	s.plain(nil)
	f()
}

func (s *S) iterates(seq func(func(int) bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range seq {
		<-s.ch // want `receives from a channel while holding S.mu`
	}
}
