package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"micronode/client"
	"micronode/internal/terminal"
)

// printChanges shows what a proposal changes. It is made from the items
// themselves: the node's own description is not used.
func (c *console) printChanges(list []client.Change) {
	for _, one := range list {
		for _, line := range changeLines(one) {
			c.print("  %s\n", c.paint(changeColour(line), line))
		}
	}
}

func changeColour(line string) terminal.Colour {
	switch strings.TrimLeft(line, " ")[0] {
	case '+':
		return terminal.Green
	case '-':
		return terminal.Red
	default:
		return terminal.Yellow
	}
}

// changeLines is one change as text: a line, and for a set of signers one more
// for each signer that is added or removed.
func changeLines(one client.Change) []string {
	before, after := decodeObject(one.Before), decodeObject(one.After)
	title := itemTitle(one.Kind, one.ID)
	switch {
	case before == nil:
		return appendSignerChanges("+ "+title+formatMembers(after), nil, after)
	case after == nil:
		return appendSignerChanges("- "+title+formatMembers(before), before, nil)
	default:
		return appendSignerChanges("~ "+title+formatDifferences(before, after), before, after)
	}
}

// itemTitle is the kind of an item and its ID. There is only one set of
// signers, so its ID is left out.
func itemTitle(kind, id any) string {
	if kind == id {
		return formatValue(id)
	}
	return formatValue(kind) + " " + formatValue(id)
}

// decodeObject decodes an item. Anything but an object has no members, and a
// number stays as it was written.
func decodeObject(raw json.RawMessage) map[string]any {
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&members) != nil {
		return nil
	}
	return members
}

// displayedMembers are the members to show on a line: without the kind and the
// ID, which begin the line, and the keys of signers, which have lines of their
// own.
func displayedMembers(members map[string]any) []string {
	list := slices.Sorted(maps.Keys(members))
	return slices.DeleteFunc(list, func(name string) bool {
		return name == "kind" || name == "id" || name == "keys" && members["kind"] == "signers"
	})
}

func formatMembers(members map[string]any) string {
	var line strings.Builder
	for _, name := range displayedMembers(members) {
		fmt.Fprintf(&line, "  %s %s", sanitize([]byte(name)), formatValue(members[name]))
	}
	return line.String()
}

func formatDifferences(before, after map[string]any) string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	var line strings.Builder
	for _, name := range displayedMembers(all) {
		if was, is := formatValue(before[name]), formatValue(after[name]); was != is {
			fmt.Fprintf(&line, "  %s %s -> %s", sanitize([]byte(name)), was, is)
		}
	}
	return line.String()
}

// formatValue is a value on one line.
func formatValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return sanitize([]byte(value))
	case []any:
		parts := []string{}
		for _, one := range value {
			parts = append(parts, formatValue(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := []string{}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			parts = append(parts, sanitize([]byte(name))+"="+formatValue(value[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprint(value)
	}
}

// appendSignerChanges adds a line for each signer that is added or removed.
func appendSignerChanges(line string, before, after map[string]any) []string {
	lines := []string{line}
	was, is := signerKeysOf(before), signerKeysOf(after)
	for _, signer := range slices.Sorted(maps.Keys(was)) {
		if key, stays := is[signer]; !stays {
			lines = append(lines, "    - "+signer+"  "+was[signer])
		} else if key != was[signer] {
			lines = append(lines, "    ~ "+signer+"  "+was[signer]+" -> "+key)
		}
	}
	for _, signer := range slices.Sorted(maps.Keys(is)) {
		if _, there := was[signer]; !there {
			lines = append(lines, "    + "+signer+"  "+is[signer])
		}
	}
	return lines
}

// signerKeysOf maps the signers of a set to their keys.
func signerKeysOf(item map[string]any) map[string]string {
	keys := map[string]string{}
	list, _ := item["keys"].([]any)
	for _, one := range list {
		key, _ := one.(map[string]any)
		keys[formatValue(key["signer_id"])] = formatValue(key["public"])
	}
	return keys
}
