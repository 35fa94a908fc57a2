package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// span is a block of code: where it is, and nothing else. Two lines of a profile with one span are about one block.
type span struct {
	file               string // import path and file name
	line, column       int
	endLine, endColumn int
}

// block is what all runs together say about a span.
type block struct {
	span
	statements int
	covered    bool
}

var profileLine = regexp.MustCompile(`^(.+):(\d+)\.(\d+),(\d+)\.(\d+) (\d+) (\d+)$`)

// readProfile reads a cover profile, or several one after the other, and returns the blocks of each package in their order.
func readProfile(r io.Reader) (map[string][]block, error) {
	var order []span
	blocks := map[span]block{}
	scanner := bufio.NewScanner(r)
	for number := 1; scanner.Scan(); number++ {
		line := scanner.Text()
		if strings.HasPrefix(line, "mode: ") {
			continue
		}
		b, err := parseBlock(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		before, seen := blocks[b.span]
		switch {
		case !seen:
			order = append(order, b.span)
		case before.statements != b.statements:
			return nil, fmt.Errorf("line %d: a block has %d statements here and %d before: the sources changed between runs, so write the profile anew",
				number, b.statements, before.statements)
		}
		b.covered = b.covered || before.covered
		blocks[b.span] = b
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	packages := map[string][]block{}
	for _, s := range order {
		pkg := path.Dir(s.file)
		packages[pkg] = append(packages[pkg], blocks[s])
	}
	return packages, nil
}

func parseBlock(line string) (block, error) {
	fields := profileLine.FindStringSubmatch(line)
	if fields == nil {
		return block{}, fmt.Errorf("%q is not a line of a cover profile", line)
	}
	var numbers [6]int
	for i, text := range fields[2:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return block{}, err
		}
		numbers[i] = n
	}
	return block{
		span:       span{fields[1], numbers[0], numbers[1], numbers[2], numbers[3]},
		statements: numbers[4],
		covered:    numbers[5] > 0,
	}, nil
}

// coverage counts statements.
type coverage struct{ covered, all int }

func (c *coverage) add(b block) {
	c.all += b.statements
	if b.covered {
		c.covered += b.statements
	}
}

func (c coverage) percent() float64 {
	if c.all == 0 {
		return 100
	}
	return 100 * float64(c.covered) / float64(c.all)
}

func coverageOf(blocks []block) coverage {
	var t coverage
	for _, b := range blocks {
		t.add(b)
	}
	return t
}
