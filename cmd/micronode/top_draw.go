package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// lines is the view as text, at most width wide and height high; zero is as much
// as there is. What matters most comes first, so what does not fit matters least.
func (v topView) lines(c *console, width, height int) []string {
	lines := v.head(c)
	if v.Answers {
		lines = append(lines, v.usage()...)
		room := math.MaxInt
		if height > 0 {
			room = height - len(lines)
		}
		lines = append(lines, v.tables(c, room)...)
	}
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i := range lines {
		lines[i] = clip(lines[i], width)
	}
	return lines
}

// head says how the node is, and what to do.
func (v topView) head(c *console) []string {
	clock := v.At.Format(time.TimeOnly)
	if !v.Answers {
		return []string{
			clock + "  " + c.paint(red, "the node does not answer; trying again"),
			"", "  " + legible(v.Error), "  " + legible(v.Next),
		}
	}
	verdict := report{}
	verdict.Ready, verdict.WriteReady, verdict.Degraded = v.Ready, v.WriteReady, v.Degraded
	lines := []string{fmt.Sprintf("%s  %s  (micronode %s, profile %s)", clock, verdict.verdict(c), legible(v.Version), legible(v.Profile))}
	for _, one := range v.Reasons {
		lines = append(lines, "  "+legible(one.Dep)+": "+legible(one.Reason), "    "+legible(one.Next))
	}
	return lines
}

// legible is a text of the node on one line, without what would move the cursor.
func legible(text string) string { return visible([]byte(text)) }

// usage says how much there is of what is kept.
func (v topView) usage() []string {
	store := fmt.Sprintf("  store     %d objects, %s", v.Store.Objects, bytesOf(float64(v.Store.Bytes)))
	if v.Store.Budget > 0 {
		store += fmt.Sprintf(" of %s (%.0f%%)", bytesOf(float64(v.Store.Budget)), 100*float64(v.Store.Bytes)/float64(v.Store.Budget))
	}
	if v.Blind != "" {
		return []string{"", store, "  no figures: " + legible(v.Blind)}
	}
	return []string{"", store,
		fmt.Sprintf("  mailbox   %.0f messages, %.0f dead, %s", v.Mailbox.Messages, v.Mailbox.Dead, bytesOf(v.Mailbox.Bytes)),
		fmt.Sprintf("  sessions  %.0f, %s opened and %s closed a second", v.Sessions.Active, rateOf(v.Sessions.Opened), rateOf(v.Sessions.Closed))}
}

// tables shares out the lines that are left among routes, queues and services.
func (v topView) tables(c *console, room int) []string {
	all := [][]string{v.routeTable(c), v.queueTable(c), v.serviceTable(c)}
	var lines []string
	for i, rows := range all {
		share := room / (len(all) - i) // what one does not use is left to the others
		rows = shorten(append([]string{""}, rows...), share)
		room -= len(rows)
		lines = append(lines, rows...)
	}
	return lines
}

// shorten says how many lines it leaves out.
func shorten(rows []string, room int) []string {
	if len(rows) <= room {
		return rows
	}
	if room < 3 {
		return nil // a space and a heading alone say nothing
	}
	return append(rows[:room-1:room-1], fmt.Sprintf("  … %d more", len(rows)-room+1))
}

func (v topView) routeTable(c *console) []string {
	switch {
	case v.Blind != "":
		return []string{"  no rates without figures"}
	case v.Seconds == 0:
		return []string{"  rates come with the next look"}
	case len(v.Routes) == 0:
		return []string{"  no requests"}
	}
	rows := [][]string{{"route", "a second", "2xx", "3xx", "4xx", "5xx", "p50", "p99"}}
	for _, one := range v.Routes {
		rows = append(rows, []string{legible(one.Route), rateOf(one.Rate), rateOf(one.OK), rateOf(one.Moved), rateOf(one.Wrong), rateOf(one.Ours), timeOf(one.P50), timeOf(one.P99)})
	}
	lines := columns(rows)
	for i, one := range v.Routes {
		if one.Ours > 0 {
			lines[i+1] = c.paint(red, lines[i+1])
		}
	}
	return lines
}

// almostFull is when a queue is shown in colour.
const almostFull = 0.8

// queueTable shows queues that hold something or have dropped something.
func (v topView) queueTable(c *console) []string {
	rows := [][]string{{"queue", "holds", "of", "dropped", "a second"}}
	colours := []string{""}
	for _, one := range v.Queues {
		if one.Depth == 0 && one.Dropped == 0 {
			continue
		}
		rows = append(rows, []string{legible(one.Service + "." + one.Name), fmt.Sprint(one.Depth), fmt.Sprint(one.Cap), fmt.Sprintf("%.0f", one.Dropped), rateOf(one.DropRate)})
		colour := ""
		switch {
		case one.DropRate > 0:
			colour = red
		case one.fullness() >= almostFull:
			colour = yellow
		}
		colours = append(colours, colour)
	}
	if len(rows) == 1 {
		return []string{"  all queues are empty"}
	}
	lines := columns(rows)
	for i, colour := range colours {
		if colour != "" {
			lines[i] = c.paint(colour, lines[i])
		}
	}
	return lines
}

// serviceTable shows services in trouble, and counts the others.
func (v topView) serviceTable(c *console) []string {
	rows := [][]string{{"service", "state", "restarts", "last error"}}
	fine := map[string]int{}
	down := 0
	for _, one := range v.Services {
		if trouble(one) == 0 {
			fine[one.State]++
			continue
		}
		if trouble(one) == 2 {
			down++
		}
		rows = append(rows, []string{legible(one.Name), legible(one.State), fmt.Sprint(one.Restarts), legible(one.LastErr)})
	}
	rest := fmt.Sprintf("  %d services run, %d have finished, without a restart", fine["running"], fine["finished"])
	if len(rows) == 1 {
		return []string{rest}
	}
	lines := columns(rows)
	for i := range down {
		lines[i+1] = c.paint(red, lines[i+1])
	}
	return append(lines, rest)
}

// columns lays out rows.
func columns(rows [][]string) []string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// clip cuts a line after so many letters. Colours take no room, and are ended.
func clip(line string, width int) string {
	if width <= 0 {
		return line
	}
	var text strings.Builder
	painted := false
	for letters := 0; line != ""; {
		if colour := leadingColour(line); colour != "" {
			painted = colour != "\x1b[0m"
			text.WriteString(colour)
			line = line[len(colour):]
			continue
		}
		if letters++; letters > width {
			break
		}
		_, size := utf8.DecodeRuneInString(line)
		text.WriteString(line[:size])
		line = line[size:]
	}
	if painted {
		text.WriteString("\x1b[0m")
	}
	return text.String()
}

func leadingColour(line string) string {
	if !strings.HasPrefix(line, "\x1b[") {
		return ""
	}
	return line[:strings.IndexByte(line, 'm')+1]
}

// rateOf is a rate with as many digits as mean something.
func rateOf(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	default:
		return fmt.Sprintf("%.0f", rate)
	}
}

// timeOf is a time in milliseconds, for people.
func timeOf(milliseconds *float64) string {
	switch {
	case milliseconds == nil:
		return "-"
	case *milliseconds < 1:
		return fmt.Sprintf("%.0fµs", *milliseconds*1000)
	case *milliseconds < 10:
		return fmt.Sprintf("%.1fms", *milliseconds)
	case *milliseconds < 10_000:
		return fmt.Sprintf("%.0fms", *milliseconds)
	default:
		return fmt.Sprintf("%.0fs", *milliseconds/1000)
	}
}

// bytesOf is a number of bytes, for people.
func bytesOf(n float64) string {
	unit := 0
	names := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; n >= 1024 && unit < len(names)-1; unit++ {
		n /= 1024
	}
	if unit == 0 || n >= 100 {
		return fmt.Sprintf("%.0f %s", n, names[unit])
	}
	return fmt.Sprintf("%.1f %s", n, names[unit])
}
