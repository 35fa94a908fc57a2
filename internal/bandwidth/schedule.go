package bandwidth

import (
	"slices"
	"time"
)

// Window is a time of the day with limits of its own.
type Window struct {
	Days     [7]bool       // on which it begins, by time.Weekday; none is all of them
	From, To time.Duration // since midnight; To before From is on the next day, and equal to it a day later
	Up, Down *int64        // in bytes a second, zero for none; nil keeps the other limit
}

// Limits are the limits in force, in bytes a second; zero for none.
type Limits struct {
	Up, Down  int64
	Scheduled bool      // a window has set one of them
	Until     time.Time // when a window begins or ends next that changes them; zero if none does

	from, until time.Time // between which they need not be found out anew
}

// At returns the limits at a time, on the local clock: of each direction those of
// the first window that has any.
func (s Settings) At(now time.Time) Limits {
	limits := s.limitsAt(now)
	if limits.from, limits.until = now, endOfTime; len(s.Schedule) == 0 {
		limits.from = time.Time{}
		return limits
	}
	limits.until = now.Truncate(time.Minute).Add(time.Minute) // windows begin and end with a minute
	for _, at := range s.edges(now) {
		if next := s.limitsAt(at); next.Up != limits.Up || next.Down != limits.Down {
			limits.Until = at
			break
		}
	}
	return limits
}

func (s Settings) limitsAt(now time.Time) Limits {
	limits := Limits{Up: s.Up, Down: s.Down}
	up, down := false, false
	for _, one := range s.Schedule {
		if !one.covers(now) {
			continue
		}
		if one.Up != nil && !up {
			limits.Up, limits.Scheduled, up = *one.Up, true, true
		}
		if one.Down != nil && !down {
			limits.Down, limits.Scheduled, down = *one.Down, true, true
		}
	}
	return limits
}

// on returns the times at which the window of a day begins and ends.
func (w Window) on(day time.Time) (from, to time.Time) {
	year, month, date := day.Date()
	at := func(d time.Duration, days int) time.Time { // by the clock on the wall, also when that changes for the summer
		return time.Date(year, month, date+days, int(d/time.Hour), int(d%time.Hour/time.Minute), 0, 0, day.Location())
	}
	next := 0
	if w.To <= w.From {
		next = 1
	}
	return at(w.From, 0), at(w.To, next)
}

func (w Window) beginsOn(day time.Time) bool { return w.Days == [7]bool{} || w.Days[day.Weekday()] }

// covers reports whether a time is in the window of this day or of the day
// before.
func (w Window) covers(now time.Time) bool {
	for _, day := range []time.Time{now, now.AddDate(0, 0, -1)} {
		if from, to := w.on(day); w.beginsOn(day) && !now.Before(from) && now.Before(to) {
			return true
		}
	}
	return false
}

// edges lists when windows begin and end in the week after a time.
func (s Settings) edges(now time.Time) []time.Time {
	var list []time.Time
	for ahead := -1; ahead <= 7; ahead++ {
		day := now.AddDate(0, 0, ahead)
		for _, one := range s.Schedule {
			if from, to := one.on(day); one.beginsOn(day) {
				list = append(list, from, to)
			}
		}
	}
	list = slices.DeleteFunc(list, func(at time.Time) bool { return !at.After(now) })
	slices.SortFunc(list, time.Time.Compare)
	return list
}
