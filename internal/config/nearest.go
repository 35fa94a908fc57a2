package config

import (
	"slices"
	"strings"
)

// nearestSetting finds the setting that somebody most likely meant by a key
// that does not exist. A right name in a wrong section counts as near, and so
// does the name that a seed gives to the setting.
func (s *schema) nearestSetting(key string) *setting {
	section, name := cutLast(clip(key))
	var best *setting
	least := 0
	for _, one := range s.settings {
		cost := distance(name, one.name)
		if one.hasSeed(key) || one.hasSeed(name) {
			cost = 0
		}
		if section != one.in.key {
			cost += 1 + distance(section, one.in.key)/3
		}
		if best == nil || cost < least {
			best, least = one, cost
		}
	}
	return best
}

// hasSeed tells whether the seeds have this name for the setting, with or
// without what is in front of its last dot.
func (s *setting) hasSeed(name string) bool {
	return slices.ContainsFunc(s.seeds, func(seed string) bool {
		_, last := cutLast(seed)
		return name == seed || name == last
	})
}

// nearestSection finds the section that somebody most likely meant, or nil if
// there are no sections.
func (s *schema) nearestSection(key string) *section {
	var best *section
	least := 0
	for _, one := range s.inOrder() {
		cost := distance(clip(key), one.key)
		if one.key != "" && (best == nil || cost < least) {
			best, least = one, cost
		}
	}
	return best
}

// cutLast splits a key into its section and its name.
func cutLast(key string) (section, name string) {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// clip bounds what is compared: a key of a megabyte is near to nothing.
func clip(key string) string { return key[:min(len(key), longest)] }

// distance counts the slips of the pen between two words: a letter too many,
// too few, wrong, or swapped with its neighbour.
func distance(a, b string) int {
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		older, old, row = old, row, older
		row[0] = i + 1
		for j := range len(b) {
			cost := old[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, old[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
