package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"micronode/fault"
)

// maxFile is more than any configuration needs. Without a bound, a path that
// leads to a disk image would be read whole.
const maxFile = 1 << 20

// readFile applies the file, and returns its FileInfo from before the read, so
// that a later change can be noticed.
func (l *loader) readFile(path string) fs.FileInfo {
	if path == "" {
		return nil
	}
	info, data, err := readRegularFile(path)
	if err != nil {
		l.addReadError(Origin{Layer: LayerFile, Name: path}, err)
		return info
	}
	// Editors of another system write a byte order mark, which TOML does not
	// know.
	data = bytes.TrimPrefix(data, []byte("\ufeff"))

	// go-toml decides what is TOML, finds duplicates and makes the values; its
	// parser provides the lines.
	doc := tomlFile{path: path}
	if err := toml.Unmarshal(data, &doc.root); err != nil {
		l.addSyntaxError(path, err)
		return info
	}
	doc.parser.Reset(data)
	l.readDocument(&doc)
	return info
}

// readRegularFile reads a regular file. A pipe is rejected, although it could
// be read once: at the next reload it would be empty, and an empty
// configuration is a valid one.
func readRegularFile(path string) (fs.FileInfo, []byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return info, nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return info, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is larger than %s", Size(maxFile))
	}
	return info, data, err
}

// addReadError reports a file that cannot be read at all.
func (l *loader) addReadError(from Origin, err error) {
	p := &Problem{Where: from.String(), Kind: fault.Malformed, What: "cannot be read: " + withoutPath(err), Next: "Name a TOML file.", Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Kind, p.Next = fault.NotFound, "Write the file, or name another one."
	case errors.Is(err, fs.ErrPermission):
		p.Kind, p.Next = fault.Forbidden, "Make it readable for the user that runs the node."
	}
	l.report.unread = true
	l.report.add("", p)
}

// withoutPath is the text of an error without the path, which is reported
// already.
func withoutPath(err error) string {
	if inPath, ok := errors.AsType[*fs.PathError](err); ok {
		return inPath.Err.Error()
	}
	return err.Error()
}

// addSyntaxError reports a file that is not TOML, or that has a duplicate.
func (l *loader) addSyntaxError(path string, err error) {
	from := Origin{Layer: LayerFile, Name: path}
	if inText, ok := errors.AsType[*toml.DecodeError](err); ok {
		from.Line, _ = inText.Position()
	}
	// What strconv adds would repeat the value, which may be a secret.
	what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "toml: "), ": strconv.")
	l.report.unread = true
	l.report.add("", &Problem{
		Where: from.String(), Kind: fault.Malformed, What: "not valid TOML: " + what,
		Next: "Correct the line; the rest of the file was not checked.",
	})
}

// tomlFile is a file that is being read.
type tomlFile struct {
	path   string
	root   map[string]any
	parser unstable.Parser
}

// at is the origin of a node.
func (t *tomlFile) at(node *unstable.Node) Origin {
	return Origin{Layer: LayerFile, Name: t.path, Line: t.parser.Shape(node.Raw).Start.Line}
}

// value returns go-toml's value of a key, unless it is below a list.
func (t *tomlFile) value(path []string) (value any, ok bool) {
	value = t.root
	for _, name := range path {
		table, isTable := value.(map[string]any)
		if !isTable {
			return nil, false
		}
		value = table[name]
	}
	return value, true
}

// readDocument reads the file from top to bottom.
func (l *loader) readDocument(doc *tomlFile) {
	var table []string
	skip := false // inside a table that was rejected
	for doc.parser.NextExpression() && !l.report.full() {
		switch node := doc.parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = path(nil, node)
			skip = !l.readHeader(doc, node, table)
		case unstable.KeyValue:
			if !skip {
				l.readPair(doc, node, table)
			}
		}
	}
	if err := doc.parser.Error(); err != nil {
		l.addSyntaxError(doc.path, err) // go-toml accepted it and its parser did not: an error rather than a skip
	}
}

// readHeader checks a [table] and reports whether to look inside.
func (l *loader) readHeader(doc *tomlFile, node *unstable.Node, table []string) bool {
	key, from := formatKey(table), doc.at(node.Child())
	p := &Problem{Where: from.String(), Key: key, Kind: fault.Malformed}
	switch one := l.schema.settingOf[key]; {
	case one != nil && one.pairs && node.Kind == unstable.Table:
		if raw, ok := doc.value(table); ok {
			l.readValue(one, raw, from)
		}
		return false // its keys are read
	case one != nil:
		_, literal := one.example()
		p.What, p.Next = key+" is a value, not a section", "For example: "+one.name+" = "+literal
	case l.schema.sectionOf[key] == nil:
		p.What, p.Next = "["+truncate(key)+"] is not a section", l.schema.suggestSection(key)
	case node.Kind == unstable.ArrayTable:
		p.What, p.Next = key+" is one section, not a list of them", "Write ["+key+"], once."
	default:
		return true
	}
	l.report.add(l.schema.enclosing(table), p)
	return false
}

// readPair applies a key and its value. A table that is written inline is a
// section like any other.
func (l *loader) readPair(doc *tomlFile, node *unstable.Node, table []string) {
	full := path(table, node)
	key, from := formatKey(full), doc.at(node.Value().Next())
	raw, ok := doc.value(full)
	one, inline := l.schema.settingOf[key], node.Value().Kind == unstable.InlineTable
	switch {
	case !ok:
		// Below a list of tables, which was rejected where it began.
	case one != nil:
		l.readValue(one, raw, from)
	case l.schema.sectionOf[key] != nil && inline:
		for inner := node.Value().Children(); inner.Next(); {
			l.readPair(doc, inner.Node(), full)
		}
	case l.schema.sectionOf[key] != nil:
		l.report.add(key, &Problem{
			Where: from.String(), Key: key, Kind: fault.Malformed,
			What: key + " is a section, not a value", Next: "Write its settings below [" + key + "].",
		})
	default:
		l.addUnknown(l.schema.enclosing(full), key, from, l.schema.suggestSetting(key))
	}
}

// readValue applies a value of the file.
func (l *loader) readValue(one *setting, raw any, from Origin) {
	if one.pairs {
		raw = pairsOf(raw)
	}
	value, ok := one.typ.fromFile(raw)
	if ok && one.allows(value) {
		l.set(one, value, from)
		return
	}
	_, literal := one.example()
	l.addMismatch(one, from, describeValue(raw, one.typ.secret), one.name+" = "+literal)
}

// pairsOf makes a list of a table of texts: NAME=VALUE, sorted.
func pairsOf(raw any) any {
	table, ok := raw.(map[string]any)
	if !ok {
		return raw
	}
	list := make([]any, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		value, isText := table[name].(string)
		if !isText {
			return raw
		}
		list = append(list, name+"="+value)
	}
	return list
}

// path is the full key of a node, as a list of names.
func path(table []string, node *unstable.Node) []string {
	full := append([]string(nil), table...)
	for part := node.Key(); part.Next(); {
		full = append(full, string(part.Node().Data))
	}
	return full
}

// bareKey matches the names that TOML allows without quotes.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// formatKey writes a full key as a file would. A name with a dot in it stays in
// quotes, so that it cannot be taken for two.
func formatKey(path []string) string {
	spelt := make([]string, len(path))
	for i, name := range path {
		if spelt[i] = name; !bareKey.MatchString(name) {
			spelt[i] = quote(name)
		}
	}
	return strings.Join(spelt, ".")
}

// enclosing is the key of the innermost section that a key is in.
func (s *schema) enclosing(path []string) string {
	for n := len(path); n > 0; n-- {
		if key := formatKey(path[:n]); s.sectionOf[key] != nil {
			return key
		}
	}
	return ""
}
