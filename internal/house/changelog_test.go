package house

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The chapters and sections of CHANGELOG.md.
var (
	chapterPattern = regexp.MustCompile(`^## (?:Unreleased|(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\))$`)
	unreleased     = "## Unreleased"
	sectionTitles  = []string{"### Upgrade notes", "### Fixes", "### Features"}
)

// TestTheChangelogIsForPeople: who upgrades reads the notes of each version on
// the way. So every entry is in a section, sections have one order, and what is
// released has a chapter.
func TestTheChangelogIsForPeople(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	version, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range changelogProblems(string(text), strings.TrimSpace(string(version))) {
		t.Error("CHANGELOG.md: " + problem)
	}
}

// changelogProblems lists what is wrong with a changelog, for the version that
// is being made.
func changelogProblems(text, version string) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var chapters []string // versions, newest first; Unreleased is empty
	chapter, section, entries := "", "", 0
	pending := false // whether something is unreleased
	endSection := func() {
		if section != "" && entries == 0 {
			problem("%q of %q is empty: leave it out", section, chapter)
		}
	}
	for number, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch found := chapterPattern.FindStringSubmatch(line); {
		case found != nil:
			endSection()
			if chapter != "" && section == "" && chapter != unreleased {
				problem("%q has no section", chapter)
			}
			chapter, section, entries = line, "", 0
			chapters = append(chapters, found[1])
		case strings.HasPrefix(line, "## "):
			problem("line %d: %q is neither Unreleased nor a version with its date: ## 1.2.3 (2026-01-31)", number+1, line)
		case strings.HasPrefix(line, "#") && chapter != "":
			endSection()
			if next := slices.Index(sectionTitles, line); next < 0 || next <= slices.Index(sectionTitles, section) {
				problem("line %d: %q: a version has %s, in this order", number+1, line, strings.Join(sectionTitles, ", "))
			}
			section, entries = line, 0
		case chapter == "" || line == "":
		case section == "":
			problem("line %d: an entry is in one of %s", number+1, strings.Join(sectionTitles, ", "))
		case strings.HasPrefix(line, "- "):
			entries++
			pending = pending || chapter == unreleased
		case !strings.HasPrefix(line, "  ") || entries == 0:
			problem("line %d: it is neither an entry, which begins with a hyphen, nor part of one", number+1)
		}
	}
	endSection()

	// A draft (1.2.3-rc1) is what is unreleased; a version has a chapter of its
	// own below that.
	base, _, draft := strings.Cut(version, "-")
	switch {
	case len(chapters) == 0 || chapters[0] != "":
		problem("it does not begin with ## Unreleased")
	case draft && !pending:
		problem("VERSION is %s, and nothing is unreleased", version)
	case draft && slices.Contains(chapters, base):
		problem("VERSION is %s, but %s is released already", version, base)
	case !draft && (len(chapters) == 1 || chapters[1] != version):
		problem("VERSION is %s, but the newest chapter is another", version)
	}
	return problems
}

func TestWhatIsWrongWithAChangelog(t *testing.T) {
	const next = "# Changes\n\n## Unreleased\n\n### Fixes\n\n- It works.\n  On Mondays, too.\n"
	const released = "\n## 1.2.3 (2026-01-31)\n\n### Upgrade notes\n\n- Stop it first.\n\n### Features\n\n- Everything.\n"
	for name, c := range map[string]struct{ text, version, want string }{
		"a draft":                   {next, "1.2.3-rc1", ""},
		"a version":                 {next + released, "1.2.3", ""},
		"a draft of the next":       {next + released, "1.3.0-pre", ""},
		"right after a release":     {"## Unreleased\n" + released, "1.2.3", ""},
		"nothing new":               {"## Unreleased\n" + released, "1.3.0-pre", "nothing is unreleased"},
		"a chapter about nothing":   {next + "\n## 1.2.3 (2026-01-31)\n" + strings.ReplaceAll(released, "1.2.3", "1.2.2"), "1.2.3", "has no section"},
		"no chapter for it":         {next + released, "1.2.4", "the newest chapter is another"},
		"a draft of what is out":    {next + released, "1.2.3-rc1", "released already"},
		"no chapter for what comes": {released, "1.2.3", "does not begin with"},
		"no date":                   {next + "\n## 1.2.3\n", "1.2.3", "nor a version with its date"},
		"an entry in no section":    {"## Unreleased\n\n- It works.\n", "1.2.3-pre", "an entry is in one of"},
		"an empty section":          {next + "\n### Features\n", "1.2.3-pre", "is empty"},
		"another order":             {next + "\n### Upgrade notes\n\n- Stop it.\n", "1.2.3-pre", "in this order"},
		"another section":           {next + "\n### Misc\n\n- Stop it.\n", "1.2.3-pre", "in this order"},
		"a stray line":              {next + "stray\n", "1.2.3-pre", "neither an entry"},
	} {
		got := strings.Join(changelogProblems(c.text, c.version), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
