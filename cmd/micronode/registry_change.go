package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"micronode/client"
)

// changes shows what a proposal changes, made from the items themselves: what a
// node says about them in its own words is not needed.
func (c *console) changes(list []client.Change) {
	for _, one := range list {
		for _, line := range changeLines(one) {
			c.print("  %s\n", c.paint(changeColour(line), line))
		}
	}
}

func changeColour(line string) string {
	switch strings.TrimLeft(line, " ")[0] {
	case '+':
		return green
	case '-':
		return red
	default:
		return yellow
	}
}

// changeLines is one change for people: a line, and for the signers one more
// for each who comes or goes.
func changeLines(one client.Change) []string {
	before, after := membersOf(one.Before), membersOf(one.After)
	title := titleOf(one.Kind, one.ID)
	switch {
	case before == nil:
		return withSigners("+ "+title+fields(after), nil, after)
	case after == nil:
		return withSigners("- "+title+fields(before), before, nil)
	default:
		return withSigners("~ "+title+differences(before, after), before, after)
	}
}

// itemLine is an item on a line.
func itemLine(raw json.RawMessage) string {
	item := membersOf(raw)
	return titleOf(item["kind"], item["id"]) + fields(item)
}

// titleOf is the kind of an item and its ID. There is only one set of signers,
// so its name is not said twice.
func titleOf(kind, id any) string {
	if kind == id {
		return text(id)
	}
	return text(kind) + " " + text(id)
}

// membersOf reads an item. What is not an object has no members, and a number
// stays as it was written.
func membersOf(raw json.RawMessage) map[string]any {
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&members) != nil {
		return nil
	}
	return members
}

// shown are the members that a line has something to say about: the kind and
// the ID stand at its beginning, and the keys of signers have lines of their
// own.
func shown(members map[string]any) []string {
	list := slices.Sorted(maps.Keys(members))
	return slices.DeleteFunc(list, func(name string) bool {
		return name == "kind" || name == "id" || name == "keys" && members["kind"] == "signers"
	})
}

func fields(members map[string]any) string {
	var line strings.Builder
	for _, name := range shown(members) {
		fmt.Fprintf(&line, "  %s %s", visible([]byte(name)), text(members[name]))
	}
	return line.String()
}

func differences(before, after map[string]any) string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	var line strings.Builder
	for _, name := range shown(all) {
		if was, is := text(before[name]), text(after[name]); was != is {
			fmt.Fprintf(&line, "  %s %s -> %s", visible([]byte(name)), was, is)
		}
	}
	return line.String()
}

// text is a value on a line.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return visible([]byte(value))
	case []any:
		parts := []string{}
		for _, one := range value {
			parts = append(parts, text(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := []string{}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			parts = append(parts, visible([]byte(name))+"="+text(value[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprint(value)
	}
}

// withSigners adds who comes and who goes.
func withSigners(line string, before, after map[string]any) []string {
	lines := []string{line}
	was, is := keysOf(before), keysOf(after)
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

// keysOf are the keys of a set of signers by their names.
func keysOf(item map[string]any) map[string]string {
	keys := map[string]string{}
	list, _ := item["keys"].([]any)
	for _, one := range list {
		key, _ := one.(map[string]any)
		keys[text(key["signer_id"])] = text(key["public"])
	}
	return keys
}
