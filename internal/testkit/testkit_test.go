package testkit_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{
		"count": func(args []string) int {
			for i, arg := range args {
				fmt.Println(i, arg)
			}
			return len(args)
		},
		"whoami": func([]string) int {
			fmt.Println(os.Getuid())
			_, _ = io.Copy(io.Discard, os.Stdin)
			return 0
		},
		"stay": func([]string) int {
			fmt.Println("here")
			select {}
		},
	})
}

// recorder keeps what an assertion complains about.
type recorder struct {
	said  []string
	fatal bool
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// Fatalf ends the check, as a test's ends the test.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.fatal = true
	panic(r)
}

func (r *recorder) run(check func(testkit.T)) {
	defer func() {
		if ended := recover(); ended != nil && ended != any(r) {
			panic(ended)
		}
	}()
	check(r)
}

// seen and seenAgain have the same JSON.
type (
	seen struct {
		ID    netip.Addr `json:"id"`
		At    time.Time  `json:"at,omitzero"`
		Sizes []int64    `json:"sizes"`
		Body  []byte     `json:"body"`
		OK    bool       `json:"ok"`
		Share float64    `json:"share"`
		Notes string     `json:"-"`
	}
	seenAgain struct {
		Name  string    `json:"id"`
		When  time.Time `json:"at,omitzero"`
		Bytes []int     `json:"sizes"`
		Body  []byte    `json:"body"`
		Done  bool      `json:"ok"`
		Part  float64   `json:"share"`
	}
	renamed struct {
		ID string `json:"name"`
	}
)

// Each assertion holds where it should, and otherwise says what was expected.
func TestAssertions(t *testing.T) {
	busy := &fault.Error{Op: "store.put", Kind: fault.StorageBusy, Detail: "the queue is full", Next: "Send it again in a second."}
	plain := fault.New("store.put", fault.StorageBusy, "the queue is full")
	for name, c := range map[string]struct {
		check func(testkit.T)
		want  string // in what it complains about; "" if it holds
		fatal bool
	}{
		"no error":            {func(t testkit.T) { testkit.Must(t, nil) }, "", false},
		"an error":            {func(t testkit.T) { testkit.Must(t, io.EOF) }, "unexpected error: EOF", true},
		"a value":             {func(t testkit.T) { testkit.Value(t, 3, nil) }, "", false},
		"an error alone":      {func(t testkit.T) { testkit.Must(t, testkit.ErrOf(3, io.EOF)) }, "unexpected error: EOF", true},
		"no value":            {func(t testkit.T) { testkit.Value(t, 3, io.EOF) }, "unexpected error: EOF", true},
		"equal":               {func(t testkit.T) { testkit.Equal(t, "n", 3, 3) }, "", false},
		"unequal":             {func(t testkit.T) { testkit.Equal(t, "n", 3, 4) }, "n: got 3, want 4", false},
		"an unexpected error": {func(t testkit.T) { testkit.Equal[error](t, "read", io.EOF, nil) }, "read: unexpected error: EOF", true},
		"another error":       {func(t testkit.T) { testkit.Equal(t, "read", io.EOF, io.ErrClosedPipe) }, "read: got EOF, want io: read/write", false},
		"equal lists":         {func(t testkit.T) { testkit.EqualLists(t, "l", []string{"a"}, []string{"a"}) }, "", false},
		"unequal lists":       {func(t testkit.T) { testkit.EqualLists(t, "l", []string{"a"}, nil) }, `l: got ["a"], want []`, false},
		"the kind":            {func(t testkit.T) { testkit.WantKind(t, busy, fault.StorageBusy) }, "", false},
		"no kind":             {func(t testkit.T) { testkit.WantKind(t, nil, 0) }, "", false},
		"another kind":        {func(t testkit.T) { testkit.WantKind(t, busy, fault.Timeout, "put ", 7) }, "put 7: got", false},
		"no error, want one":  {func(t testkit.T) { testkit.WantKind(t, nil, fault.Timeout) }, "got no error, want one of kind", false},
		"an error, want none": {func(t testkit.T) { testkit.WantKind(t, busy, 0) }, "want no error", false},
		"a refusal":           {func(t testkit.T) { testkit.WantRefusal(t, busy, fault.StorageBusy, "queue is full") }, "", false},
		"accepted":            {func(t testkit.T) { testkit.WantRefusal(t, nil, fault.StorageBusy, "") }, "got no error", false},
		"other words":         {func(t testkit.T) { testkit.WantRefusal(t, busy, fault.StorageBusy, "empty") }, `want "empty" in it`, false},
		"no step of its own":  {func(t testkit.T) { testkit.WantRefusal(t, plain, fault.StorageBusy, "") }, "want one of its own", false},
		"no operation": {func(t testkit.T) {
			testkit.WantRefusal(t, &fault.Error{Kind: fault.StorageBusy, Detail: "x", Next: "Wait."}, fault.StorageBusy, "")
		}, "names no operation", false},
		"the same JSON":  {func(t testkit.T) { testkit.SameJSON[seen, seenAgain](t) }, "", false},
		"another member": {func(t testkit.T) { testkit.SameJSON[renamed, seen](t) }, "testkit_test.renamed is {name text}, and testkit_test.seen is {id text, at,omitzero time, sizes [integer], body bytes, ok truth, share number}", false},
	} {
		var r recorder
		r.run(c.check)
		switch said := strings.Join(r.said, "; "); {
		case c.want == "" && said != "":
			t.Errorf("%s: it complains: %s", name, said)
		case !strings.Contains(said, c.want) || len(r.said) > 1 || r.fatal != c.fatal:
			t.Errorf("%s: it says %q (fatal: %t), want %q (fatal: %t)", name, r.said, r.fatal, c.want, c.fatal)
		}
	}
}

func TestWaitForAndAddresses(t *testing.T) {
	asked := 0
	testkit.WaitFor(t, "it was asked three times", func() bool { asked++; return asked == 3 })
	listener, err := net.Listen("tcp", testkit.FreeAddress(t))
	testkit.Must(t, err)
	testkit.Must(t, listener.Close())
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	testkit.WriteFile(t, path, "hello")
	testkit.Golden(t, path, []byte("hello"))
	pair, certFile, _ := testkit.Certificate(t)
	if err := pair.Leaf.VerifyHostname("127.0.0.1"); err != nil || filepath.Base(certFile) != "cert.pem" {
		t.Errorf("%s: %v", certFile, err)
	}
	info, err := os.Stat(testkit.OpenFolder(t))
	if testkit.Must(t, err); info.Mode().Perm() != 0o777 {
		t.Errorf("an open folder has the mode %o", info.Mode().Perm())
	}
}

func TestChildren(t *testing.T) {
	child, lines := testkit.Child("count", "one", "two words"), []string(nil)
	testkit.ReadChild(t, child, func(line string) { lines = append(lines, line) })
	testkit.EqualLists(t, "what the child printed", lines, []string{"0 one", "1 two words"})

	stays := testkit.Child("stay")
	testkit.ReadChild(t, stays, func(string) { _ = stays.Process.Kill() })
	if stays.ProcessState.ExitCode() != -1 {
		t.Errorf("the child ended by itself: %v", stays.ProcessState)
	}

	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	user, end := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "whoami"))
	testkit.Equal(t, "the other user", user, "65534")
	end()
}
