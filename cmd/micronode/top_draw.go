package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// lines is the view as text, at most width wide and height high; zero is as much
// as there is. What matters most comes first, so what does not fit matters least.
func (v topView) lines(c *console, width, height int) []string {
	lines := v.head(c, width, height)
	if v.Answers {
		lines = append(lines, v.usage(c)...)
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

// head says how the node is, and what to do. Next steps are not cut off but go on
// in the next line: half a command is of no use.
func (v topView) head(c *console, width, height int) []string {
	clock := v.At.Format(time.TimeOnly)
	if !v.Answers {
		lines := []string{clock + "  " + c.paint(red, "the node does not answer; trying again")}
		if v.LastAnswer != nil {
			lines = append(lines, "  The last answer came at "+v.LastAnswer.Format(time.TimeOnly)+".")
		}
		return append(append(append(lines, ""), wrap("  ", v.Error, width)...), wrap("  ", v.Next, width)...)
	}
	verdict := report{}
	verdict.Ready, verdict.WriteReady, verdict.Degraded = v.Ready, v.WriteReady, v.Degraded
	up := ""
	if v.Process != nil {
		up = ", up " + spanOf(v.Process.Seconds)
	}
	var reasons []string
	for _, one := range v.Reasons {
		reasons = append(reasons, wrap("  ", one.Dep+": "+one.Reason, width)...)
		reasons = append(reasons, wrap("    ", one.Next, width)...)
	}
	if height > 0 {
		reasons = shorten(reasons, max(height/2, 3))
	}
	first := fmt.Sprintf("%s  %s  (micronode %s, profile %s%s)", clock, verdict.verdict(c), legible(v.Version), legible(v.Profile), up)
	return append([]string{first}, reasons...)
}

// wrap breaks a text of the node between words, into lines no wider than width;
// zero is as wide as it is.
func wrap(indent, text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(legible(text)) {
		switch {
		case line == "":
			line = indent + word
		case width > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// legible is a text of the node on one line, without what would move the cursor.
func legible(text string) string { return visible([]byte(text)) }

// usage says how much there is of what is kept, and what was refused.
func (v topView) usage(c *console) []string {
	store := fmt.Sprintf("  store     %d objects, %s", v.Store.Objects, bytesOf(float64(v.Store.Bytes)))
	if v.Store.Budget > 0 {
		store += fmt.Sprintf(" of %s (%.0f%%)", bytesOf(float64(v.Store.Budget)), 100*float64(v.Store.Bytes)/float64(v.Store.Budget))
	}
	lines := []string{"", store}
	if v.Mailbox != nil {
		lines = append(lines, fmt.Sprintf("  mailbox   %.0f messages, %.0f dead, %s", v.Mailbox.Messages, v.Mailbox.Dead, bytesOf(v.Mailbox.Bytes)))
	}
	if v.Sessions != nil {
		lines = append(lines, fmt.Sprintf("  sessions  %.0f, %s opened and %s closed a second", v.Sessions.Active, rateOf(v.Sessions.Opened), rateOf(v.Sessions.Closed)))
	}
	if p := v.Process; p != nil {
		lines = append(lines, fmt.Sprintf("  memory    %s, %.0f tasks, %.0f of %.0f descriptors", bytesOf(p.Memory), p.Tasks, p.Descriptors, p.Most))
	}
	if len(v.Parts) > 0 {
		lines = append(lines, v.partsLine(c))
	}
	if v.Blind != "" {
		return append(lines, "  no figures: "+legible(v.Blind))
	}
	return append(lines, v.refusedLine(c))
}

// partsLine tells where the parts of the node are. Why one is away, and what to
// do about it, is among the reasons.
func (v topView) partsLine(c *console) string {
	var here, elsewhere, away []string
	for _, one := range v.Parts {
		name := legible(one.Name)
		switch {
		case !one.Up:
			away = append(away, name)
		case one.At != "":
			elsewhere = append(elsewhere, name)
		default:
			here = append(here, name)
		}
	}
	var said []string
	if away != nil {
		said = append(said, c.paint(red, "away: "+strings.Join(away, ", ")))
	}
	if elsewhere != nil {
		said = append(said, "elsewhere: "+strings.Join(elsewhere, ", "))
	}
	if here != nil {
		said = append(said, "here: "+strings.Join(here, ", "))
	}
	return "  parts     " + strings.Join(said, "; ")
}

// refusedLine tells what is refused now, or else what was.
func (v topView) refusedLine(c *console) string {
	var now, earlier []string
	for _, one := range v.Refusals {
		by := legible(one.Service + " " + one.What)
		if one.Rate > 0 {
			now = append(now, by+" "+rateOf(one.Rate))
		}
		earlier = append(earlier, fmt.Sprintf("%s %.0f", by, one.Total))
	}
	switch {
	case now != nil:
		return "  refused   " + c.paint(yellow, "a second: "+strings.Join(now, ", "))
	case earlier != nil:
		return "  refused   in all: " + strings.Join(earlier, ", ")
	default:
		return "  refused   nothing"
	}
}

// tables shares out the lines that are left among routes, queues and services.
// The shortest is served first, and what it does not use is left to the others.
func (v topView) tables(c *console, room int) []string {
	all := [][]string{v.routeTable(c), v.queueTable(c), v.serviceTable(c)}
	order := []int{0, 1, 2}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(all[a]), len(all[b])) })
	for i, k := range order {
		all[k] = shorten(append([]string{""}, all[k]...), room/(len(all)-i))
		room -= len(all[k])
	}
	return slices.Concat(all...)
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
		if one.Ours > 0 && watching(one.Route) == 0 { // a node that says that it is not ready has answered well
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

// spanOf is how long something lasts, in its two largest units.
func spanOf(seconds float64) string {
	const day = 24 * time.Hour
	span := time.Duration(seconds) * time.Second
	switch {
	case span >= day:
		return fmt.Sprintf("%dd%dh", span/day, span%day/time.Hour)
	case span >= time.Hour:
		return fmt.Sprintf("%dh%dm", span/time.Hour, span%time.Hour/time.Minute)
	default:
		return span.String()
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
