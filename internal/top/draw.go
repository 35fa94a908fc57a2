package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"micronode/internal/terminal"
)

// Lines is the view as text, at most width wide and height high; zero means no
// limit. The most important lines come first, so the least important are cut.
func (v View) Lines(colours bool, width, height int) []string {
	paint := painter(terminal.Colour.Paint)
	if !colours {
		paint = func(_ terminal.Colour, text string) string { return text }
	}
	lines := v.head(paint, width, height)
	if v.Answers {
		lines = append(lines, v.usage(paint)...)
		room := math.MaxInt
		if height > 0 {
			room = height - len(lines)
		}
		lines = append(lines, v.tables(paint, room)...)
	}
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	if width > 0 {
		clip := lipgloss.NewStyle().MaxWidth(width)
		for i := range lines {
			lines[i] = clip.Render(lines[i])
		}
	}
	return lines
}

// painter colours a text, or leaves it as it is.
type painter func(colour terminal.Colour, text string) string

// head shows the state of the node, and the next steps. Next steps are wrapped
// and not cut off: half a command is useless.
func (v View) head(paint painter, width, height int) []string {
	clock := v.At.Format(time.TimeOnly)
	if !v.Answers {
		lines := []string{clock + "  " + paint(terminal.Red, "the node does not answer; retrying")}
		if v.LastAnswer != nil {
			lines = append(lines, "  The last answer came at "+v.LastAnswer.Format(time.TimeOnly)+".")
		}
		return append(append(append(lines, ""), wrap("  ", v.Error, width)...), wrap("  ", v.Next, width)...)
	}
	text, colour := terminal.ReadinessText(v.Ready, v.WriteReady, v.Degraded)
	up := ""
	if v.Process != nil {
		up = ", up " + formatUptime(v.Process.UpSeconds)
	}
	var reasons []string
	for _, one := range v.Reasons {
		reasons = append(reasons, wrap("  ", one.Dep+": "+one.Reason, width)...)
		reasons = append(reasons, wrap("    ", one.Next, width)...)
	}
	if height > 0 {
		reasons = shorten(reasons, max(height/2, 3))
	}
	first := fmt.Sprintf("%s  %s  (micronode %s, profile %s%s)", clock, paint(colour, text), terminal.Sanitize(v.Version), terminal.Sanitize(v.Profile), up)
	return append([]string{first}, reasons...)
}

// wrap breaks a text of the node between words, into lines no wider than
// width; zero means no limit.
func wrap(indent, text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(terminal.Sanitize(text)) {
		switch {
		case line == "":
			line = indent + word
		case width > 0 && lipgloss.Width(line)+1+lipgloss.Width(word) > width:
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

// usage shows how much is stored, and what was refused.
func (v View) usage(paint painter) []string {
	store := fmt.Sprintf("  store     %d objects, %s", v.Store.Objects, terminal.FormatBytes(float64(v.Store.Bytes)))
	if v.Store.Budget > 0 {
		store += fmt.Sprintf(" of %s (%.0f%%)", terminal.FormatBytes(float64(v.Store.Budget)), 100*float64(v.Store.Bytes)/float64(v.Store.Budget))
	}
	lines := []string{"", store}
	if v.Mailbox != nil {
		lines = append(lines, fmt.Sprintf("  mailbox   %.0f messages, %.0f dead, %s", v.Mailbox.Messages, v.Mailbox.Dead, terminal.FormatBytes(v.Mailbox.Bytes)))
	}
	if v.Sessions != nil {
		lines = append(lines, fmt.Sprintf("  sessions  %.0f, %s opened and %s closed a second", v.Sessions.Active, terminal.FormatRate(v.Sessions.Opened), terminal.FormatRate(v.Sessions.Closed)))
	}
	if p := v.Process; p != nil {
		lines = append(lines, fmt.Sprintf("  memory    %s, %.0f tasks, %.0f of %.0f descriptors", terminal.FormatBytes(p.Memory), p.Tasks, p.Descriptors, p.MaxDescriptors))
	}
	if len(v.Parts) > 0 {
		lines = append(lines, v.partsLine(paint))
	}
	if v.MetricsErr != "" {
		return append(lines, "  no figures: "+terminal.Sanitize(v.MetricsErr))
	}
	return append(lines, v.refusedLine(paint))
}

// partsLine shows where the parts of the node run. Why one is unreachable, and
// what to do about it, is among the reasons.
func (v View) partsLine(paint painter) string {
	var here, elsewhere, away []string
	for _, one := range v.Parts {
		name := terminal.Sanitize(one.Name)
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
		said = append(said, paint(terminal.Red, "away: "+strings.Join(away, ", ")))
	}
	if elsewhere != nil {
		said = append(said, "elsewhere: "+strings.Join(elsewhere, ", "))
	}
	if here != nil {
		said = append(said, "here: "+strings.Join(here, ", "))
	}
	return "  parts     " + strings.Join(said, "; ")
}

// refusedLine shows what is being refused now, or else what was refused
// before.
func (v View) refusedLine(paint painter) string {
	var now, earlier []string
	for _, one := range v.Refusals {
		by := terminal.Sanitize(one.Service + " " + one.What)
		if one.Rate > 0 {
			now = append(now, by+" "+terminal.FormatRate(one.Rate))
		}
		earlier = append(earlier, fmt.Sprintf("%s %.0f", by, one.Total))
	}
	switch {
	case now != nil:
		return "  refused   " + paint(terminal.Yellow, "a second: "+strings.Join(now, ", "))
	case earlier != nil:
		return "  refused   in all: " + strings.Join(earlier, ", ")
	default:
		return "  refused   nothing"
	}
}

// tables divides the remaining lines among routes, queues and services. The
// shortest table comes first, and leaves its unused lines to the others.
func (v View) tables(paint painter, room int) []string {
	all := [][]string{v.routeTable(paint), v.queueTable(paint), v.serviceTable(paint)}
	order := []int{0, 1, 2}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(all[a]), len(all[b])) })
	for i, k := range order {
		all[k] = shorten(append([]string{""}, all[k]...), room/(len(all)-i))
		room -= len(all[k])
	}
	return slices.Concat(all...)
}

// shorten cuts the rows and shows how many are left out.
func shorten(rows []string, room int) []string {
	if len(rows) <= room {
		return rows
	}
	if room < 3 {
		return nil // an empty line and a heading alone are useless
	}
	return append(rows[:room-1:room-1], fmt.Sprintf("  … %d more", len(rows)-room+1))
}

func (v View) routeTable(paint painter) []string {
	switch {
	case v.MetricsErr != "":
		return []string{"  no rates without /metrics"}
	case v.Seconds == 0:
		return []string{"  rates follow with the next sample"}
	case len(v.Routes) == 0:
		return []string{"  no requests"}
	}
	rows := [][]string{{"route", "a second", "2xx", "3xx", "4xx", "5xx", "p50", "p99"}}
	for _, one := range v.Routes {
		rows = append(rows, []string{terminal.Sanitize(one.Route), terminal.FormatRate(one.Rate), terminal.FormatRate(one.Rate2xx), terminal.FormatRate(one.Rate3xx), terminal.FormatRate(one.Rate4xx), terminal.FormatRate(one.Rate5xx), terminal.FormatMillis(one.P50), terminal.FormatMillis(one.P99)})
	}
	lines := terminal.Columns(rows)
	for i, one := range v.Routes {
		if one.Rate5xx > 0 && monitoringRank(one.Route) == 0 { // 503 of a readiness probe is not an error
			lines[i+1] = paint(terminal.Red, lines[i+1])
		}
	}
	return lines
}

// nearlyFullRatio is the fullness from which a queue is coloured.
const nearlyFullRatio = 0.8

// queueTable shows queues that hold or have dropped something.
func (v View) queueTable(paint painter) []string {
	rows := [][]string{{"queue", "holds", "of", "dropped", "a second"}}
	colours := []terminal.Colour{""}
	for _, one := range v.Queues {
		if one.Depth == 0 && one.Dropped == 0 {
			continue
		}
		rows = append(rows, []string{terminal.Sanitize(one.Service + "." + one.Name), fmt.Sprint(one.Depth), fmt.Sprint(one.Cap), fmt.Sprintf("%.0f", one.Dropped), terminal.FormatRate(one.DropRate)})
		var colour terminal.Colour
		switch {
		case one.DropRate > 0:
			colour = terminal.Red
		case one.fullness() >= nearlyFullRatio:
			colour = terminal.Yellow
		}
		colours = append(colours, colour)
	}
	if len(rows) == 1 {
		return []string{"  all queues are empty"}
	}
	lines := terminal.Columns(rows)
	for i, colour := range colours {
		if colour != "" {
			lines[i] = paint(colour, lines[i])
		}
	}
	return lines
}

// serviceTable shows services with problems, and counts the others.
func (v View) serviceTable(paint painter) []string {
	rows := [][]string{{"service", "state", "restarts", "last error"}}
	fine := map[string]int{}
	down := 0
	for _, one := range v.Services {
		if troubleRank(one) == 0 {
			fine[one.State]++
			continue
		}
		if troubleRank(one) == 2 {
			down++
		}
		rows = append(rows, []string{terminal.Sanitize(one.Name), terminal.Sanitize(one.State), fmt.Sprint(one.Restarts), terminal.Sanitize(one.LastErr)})
	}
	rest := fmt.Sprintf("  %d services run, %d have finished, without a restart", fine["running"], fine["finished"])
	if len(rows) == 1 {
		return []string{rest}
	}
	lines := terminal.Columns(rows)
	for i := range down {
		lines[i+1] = paint(terminal.Red, lines[i+1])
	}
	return append(lines, rest)
}

// formatUptime is a duration in its two largest units.
func formatUptime(seconds float64) string {
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
