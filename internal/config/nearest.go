package config

import (
	"slices"
	"strings"

	"micronode/internal/typo"
)

// nearestSetting finds the setting that was most likely meant by an unknown
// key. A right name in a wrong section counts as near, and so does the name
// that a seed gives to the setting.
func (s *schema) nearestSetting(key string) *setting {
	best, _ := s.settingNear(key)
	return best
}

// settingNear also returns the edit distance.
func (s *schema) settingNear(key string) (best *setting, least int) {
	section, name := cutLast(truncateKey(key))
	for _, one := range s.settings {
		cost := typo.Distance(name, one.name)
		if one.hasSeed(key) || one.hasSeed(name) {
			cost = 0
		}
		if section != one.in.key {
			cost += 1 + typo.Distance(section, one.in.key)/3
		}
		if best == nil || cost < least {
			best, least = one, cost
		}
	}
	return best, least
}

// suggestSetting is the next step for an unknown key in a file.
func (s *schema) suggestSetting(key string) string {
	best, slips := s.settingNear(key)
	_, name := cutLast(truncateKey(key))
	return "The nearest key is " + best.key + "." + otherVersion(name, slips)
}

// suggestSection is the same for a section.
func (s *schema) suggestSection(key string) string {
	best := s.nearestSection(key)
	if best == nil {
		return s.suggestSetting(key)
	}
	return "The nearest section is [" + best.key + "]." + otherVersion(key, typo.Distance(truncateKey(key), best.key))
}

// otherVersion adds another explanation when nothing is near: a single word
// rarely has so many typing errors.
func otherVersion(word string, slips int) string {
	if slips <= max(2, len(word)/2) {
		return ""
	}
	return " If the file is for another version of micronode, `micronode config show` lists what this one knows."
}

// hasSeed reports whether the seeds have this name for the setting, with or
// without what is before its last dot.
func (s *setting) hasSeed(name string) bool {
	return slices.ContainsFunc(s.seeds, func(seed string) bool {
		_, last := cutLast(seed)
		return name == seed || name == last
	})
}

// nearestSection finds the section that was most likely meant, or nil if there
// are no sections.
func (s *schema) nearestSection(key string) *section {
	var best *section
	least := 0
	for _, one := range s.inOrder() {
		cost := typo.Distance(truncateKey(key), one.key)
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

// truncateKey bounds what is compared: a key of a megabyte is near to nothing.
func truncateKey(key string) string { return key[:min(len(key), maxShown)] }
