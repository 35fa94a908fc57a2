package house

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/node"
)

// TestPagesQuoteTheDefaults holds the defaults that the pages repeat, because a
// reader needs them there, equal to those of the code.
func TestPagesQuoteTheDefaults(t *testing.T) {
	c, err := node.Defaults("micronode")
	if err != nil {
		t.Fatal(err)
	}
	m, f := c.Mailbox, c.Facets
	for page, quotes := range map[string][]string{
		"mailbox.md": {
			fmt.Sprintf("| `ram_bytes` | %s |", sizeText(m.RAMBytes)),
			fmt.Sprintf("| `disk_bytes` | %s |", sizeText(m.DiskBytes)),
			fmt.Sprintf("| `boxes`, `box_messages`, `box_bytes` | %s; %s; ", countText(m.Boxes), countText(m.BoxMessages)),
			fmt.Sprintf("| `max_message_bytes` | %s |", sizeText(m.MaxMessageBytes)),
			fmt.Sprintf("| `keys`, `key_life` | %s; %s |", countText(m.Keys), timeText(m.KeyLife)),
			fmt.Sprintf("| `receivers`, `max_wait` | %s; %s |", countText(m.Receivers), timeText(m.MaxWait)),
			fmt.Sprintf("| `max_deliveries`, `visibility` | %d; %s |", m.MaxDeliveries, timeText(m.Visibility)),
			fmt.Sprintf("| `dead_letters`, `dead_life` | %s a box; %d days |", countText(m.DeadLetters), m.DeadLife/(24*time.Hour)),
			fmt.Sprintf("| `boards`, `board_notes` | %s; %s |", countText(m.Boards), countText(m.BoardNotes)),
			fmt.Sprintf("%s an hour, or %.0f a second on average", countText(m.Keys), float64(m.Keys)/m.KeyLife.Seconds()),
		},
		"facets.md": {
			fmt.Sprintf("| `facets.graph.max_edges` | %s |", countText(f.Graph.MaxEdges)),
			fmt.Sprintf("| `facets.graph.max_follows` | %s |", countText(f.Graph.MaxFollows)),
			fmt.Sprintf("| `facets.graph.max_neighbors` | %s |", countText(f.Graph.MaxNeighbors)),
			fmt.Sprintf("| `facets.graph.walk_edges` | %s |", countText(f.Graph.WalkEdges)),
			fmt.Sprintf("`facets.feed.half_life`, %.0f hours by default", f.Feed.HalfLife.Hours()),
			fmt.Sprintf("`facets.search.max_bytes` (default %s)", sizeText(f.Search.MaxBytes)),
			fmt.Sprintf("`facets.media.job_bytes` (default %s)", sizeText(f.Media.JobBytes)),
		},
	} {
		text := readPage(t, page)
		for _, quote := range quotes {
			if !strings.Contains(text, quote) {
				t.Errorf("docs/%s does not say %q, which is what the code does", page, quote)
			}
		}
	}
}

// TestThePageOfPartsListsThemAll compares the list of parts in docs/parts.md
// with the table of parts.
func TestThePageOfPartsListsThemAll(t *testing.T) {
	_, after, found := strings.Cut(readPage(t, "parts.md"), "**Parts** are ")
	list, _, _ := strings.Cut(after, ".")
	listed := strings.FieldsFunc(strings.ReplaceAll(list, " and ", ", "), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	slices.Sort(listed)
	if names := slices.Sorted(slices.Values(node.PartNames())); !found || !slices.Equal(listed, names) {
		t.Errorf("docs/parts.md lists %q, the code has %q", listed, names)
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sizeText writes a size as the pages do: 64 MiB.
func sizeText(size config.Size) string {
	text := size.String()
	digits := strings.TrimRight(text, "KMGTiB")
	return digits + " " + text[len(digits):]
}

// timeText writes a time in the largest unit that fits, as the pages do: 30 s.
func timeText(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// countText groups digits from five digits on, as the pages do: 1000, 10,000.
func countText(n int) string {
	text := strconv.Itoa(n)
	if len(text) < 5 {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
