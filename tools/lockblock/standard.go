package lockblock

import (
	"go/types"
	"strings"
)

// knownWait names functions of one package that wait. The table below stands in for the bodies of the standard library.
type knownWait struct {
	pkg   string
	recv  string // "": functions; "*": methods of any type; otherwise methods of this type, which may be an interface
	names string // separated by spaces; a star at the end stands for any ending
	why   string
}

const (
	disk     = "touches the disk"
	network  = "uses the network"
	stream   = "reads or writes a stream" // only if the stream at the bottom is not in memory
	logging  = "writes a log"
	database = "asks a database"
	process  = "waits for a process"
	terminal = "reads or writes the terminal"
)

var knownWaits = []knownWait{
	{"time", "", "Sleep", "sleeps"},
	{"sync", "WaitGroup", "Wait", "waits for a WaitGroup"},
	{"sync", "Cond", "Wait", "waits on a Cond"},
	{"testing/synctest", "", "Wait Test", "waits for goroutines"},

	{"os", "", "Open* Create* Mkdir* Read* Write* Remove* Rename Link Symlink Stat Lstat Truncate Chmod Chown Lchown Chtimes Chdir Getwd CopyFS Hostname", disk},
	{"os", "File", "Read* Write* Seek Stat Sync Truncate Close Chmod Chown Chdir", disk},
	{"os", "Root", "*", disk},
	{"os", "", "StartProcess", process},
	{"os", "Process", "Wait", process},
	{"os/exec", "Cmd", "Run Start Wait Output CombinedOutput", process},
	{"os/user", "", "Current Lookup*", disk},
	{"io/fs", "", "ReadFile ReadDir WalkDir Glob Stat", disk},
	{"io/fs", "FS", "*", disk},
	{"io/fs", "File", "*", disk},
	{"io/fs", "ReadDirFile", "*", disk},
	{"io/fs", "ReadDirFS", "*", disk},
	{"io/fs", "ReadFileFS", "*", disk},
	{"io/fs", "StatFS", "*", disk},
	{"path/filepath", "", "Walk WalkDir Glob EvalSymlinks", disk},
	{"syscall", "", "Read Pread Write Pwrite Open Openat Close Fsync Fdatasync Ftruncate Fallocate Flock Rename* Unlink* Mkdir*", disk},
	{"golang.org/x/sys/unix", "", "Read* Pread* Write* Pwrite* Open* Close Fsync Fdatasync Ftruncate Fallocate Flock Msync Rename* Unlink* Mkdir*", disk},

	{"net", "", "Dial* Listen* Lookup* Resolve* File* Interface*", network},
	{"net", "*", "Read* Write* Accept* Close* Dial* Listen* Lookup*", network},
	{"syscall", "", "Accept* Connect Recv* Send* Select EpollWait Wait4", network},
	{"golang.org/x/sys/unix", "", "Accept* Connect Recv* Send* Select Poll Ppoll EpollWait Splice Wait*", network},
	{"crypto/tls", "", "Dial* Listen", network},
	{"crypto/tls", "Conn", "Read* Write* Close* Handshake* VerifyHostname", network},
	{"crypto/tls", "Dialer", "Dial*", network},
	{"net/http", "", "Get Head Post PostForm ListenAndServe* Serve* Error NotFound Redirect", network},
	{"net/http", "Client", "Do Get Head Post PostForm", network},
	{"net/http", "Server", "ListenAndServe* Serve* Shutdown Close", network},
	{"net/http", "*", "RoundTrip ServeHTTP Flush* Hijack", network},
	{"net/http", "ResponseWriter", "Write WriteHeader", network},
	{"net/http", "Request", "Parse* FormValue FormFile PostFormValue Write*", network},
	{"net/http/httputil", "*", "ServeHTTP", network},
	{"net/http/httputil", "", "Dump*", network},
	{"database/sql", "*", "Exec* Query* Prepare* Begin* Ping* Close Commit Rollback Next* Scan Raw", database},

	{"log", "", "Print* Fatal* Panic* Output", logging},
	{"log", "Logger", "Print* Fatal* Panic* Output", logging},
	{"log/slog", "", "Debug* Info* Warn* Error* Log LogAttrs", logging},
	{"log/slog", "Logger", "Debug* Info* Warn* Error* Log LogAttrs", logging},
	{"log/slog", "*", "Handle", logging},
	{"fmt", "", "Print* Scan Scanln Scanf", terminal},

	{"fmt", "", "Fprint* Fscan*", stream},
	{"io", "", "Copy* Read* WriteString", stream},
	{"io", "*", "Read* Write* Seek Close", stream},
	{"bufio", "*", "Read* Write* Flush Peek Discard Scan", stream},
	{"encoding/json", "*", "Encode Decode Token More", stream},
	{"encoding/gob", "*", "Encode* Decode*", stream},
	{"encoding/xml", "*", "Encode* Decode* Flush Token RawToken", stream},
	{"encoding/csv", "*", "Read* Write* Flush", stream},
	{"encoding/binary", "", "Read Write ReadUvarint ReadVarint", stream},
	{"compress/gzip", "*", "Read* Write* Flush Close", stream},
	{"compress/zlib", "*", "Write* Flush Close", stream},
	{"compress/flate", "*", "Write* Flush Close", stream},
	{"mime/multipart", "Reader", "Next* ReadForm", stream},
	{"text/template", "Template", "Execute*", stream},
	{"html/template", "Template", "Execute*", stream},
}

// knownByPackage is the table by package, because most packages are not in it.
var knownByPackage = func() map[string][]knownWait {
	table := map[string][]knownWait{}
	for _, known := range knownWaits {
		table[known.pkg] = append(table[known.pkg], known)
	}
	return table
}()

// known finds what a function of the table waits for, or nothing.
func known(fn *types.Func) string {
	if fn.Pkg() == nil {
		return ""
	}
	for _, known := range knownByPackage[fn.Pkg().Path()] {
		if known.matches(fn) {
			return known.why
		}
	}
	return ""
}

func (k knownWait) matches(fn *types.Func) bool {
	recv := receiverName(fn)
	if (recv == "") != (k.recv == "") || k.recv != "*" && k.recv != recv {
		return false
	}
	for _, name := range strings.Fields(k.names) {
		prefix, open := strings.CutSuffix(name, "*")
		if name == fn.Name() || open && strings.HasPrefix(fn.Name(), prefix) {
			return true
		}
	}
	return false
}

// receiverName is the name of the type that a method belongs to; it is empty for a function.
func receiverName(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return ""
	}
	if named, ok := types.Unalias(pointee(recv.Type())).(*types.Named); ok {
		return named.Obj().Name()
	}
	return "an unnamed type"
}

// callsBack reports whether a function of the standard library calls the functions it is given before it returns.
func callsBack(fn *types.Func) bool {
	if fn.Pkg() == nil {
		return false
	}
	switch fn.Pkg().Path() {
	case "sort", "slices", "maps", "strings", "bytes":
		return true
	}
	switch fn.FullName() {
	case "(*sync.Once).Do", "(*sync.Map).Range":
		return true
	}
	return false
}
