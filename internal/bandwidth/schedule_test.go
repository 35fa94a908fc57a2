package bandwidth

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
)

func limitOf(n int64) *int64 { return &n }

func TestScheduleByTheClock(t *testing.T) {
	s := Settings{Up: 100, Down: 200, Schedule: []Window{
		{From: 22 * time.Hour, To: 6 * time.Hour, Up: limitOf(0)},
		{Days: [7]bool{time.Saturday: true}, From: 10 * time.Hour, To: 10 * time.Hour, Up: limitOf(5), Down: limitOf(7)},
		{From: 12 * time.Hour, To: 13*time.Hour + 30*time.Minute, Up: limitOf(9)},
	}}
	for at, want := range map[string]struct {
		up, down int64
		until    string
	}{
		"2026-11-19 21:59": {100, 200, "2026-11-19 22:00"}, // a Thursday
		"2026-11-19 22:00": {0, 200, "2026-11-20 06:00"},
		"2026-11-20 00:00": {0, 200, "2026-11-20 06:00"},
		"2026-11-20 05:59": {0, 200, "2026-11-20 06:00"},
		"2026-11-20 06:00": {100, 200, "2026-11-20 12:00"},
		"2026-11-20 13:29": {9, 200, "2026-11-20 13:30"},
		"2026-11-21 09:59": {100, 200, "2026-11-21 10:00"},
		"2026-11-21 12:00": {5, 7, "2026-11-21 22:00"}, // the first that fits
		"2026-11-21 23:00": {0, 7, "2026-11-22 06:00"}, // the first that fits, of each direction
		"2026-11-22 09:00": {5, 7, "2026-11-22 10:00"}, // begun on Saturday
		"2026-11-22 10:00": {100, 200, "2026-11-22 12:00"},
	} {
		now, err := time.ParseInLocation("2006-01-02 15:04", at, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		got := s.At(now)
		if got.Up != want.up || got.Down != want.down || got.Until.Format("2006-01-02 15:04") != want.until {
			t.Errorf("at %s: up %d down %d until %s, want %d %d %s", at, got.Up, got.Down, got.Until, want.up, want.down, want.until)
		}
	}
}

func TestWindowsFollowTheClockIntoSummer(t *testing.T) {
	place := time.FixedZone("", 0)
	if vienna, err := time.LoadLocation("Europe/Vienna"); err == nil {
		place = vienna
	}
	s := Settings{Schedule: []Window{{From: 22 * time.Hour, To: 6 * time.Hour, Up: limitOf(1)}}}
	if got := s.At(time.Date(2026, 3, 29, 5, 59, 0, 0, place)); got.Up != 1 { // the night has an hour less
		t.Error("the window ended an hour too soon")
	}
	if got := s.At(time.Date(2026, 3, 29, 6, 0, 0, 0, place)); got.Up != 0 || got.Scheduled {
		t.Error("the window ended an hour too late")
	}
}

func TestALimitChangesWithTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		begins := now.Sub(time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)).Truncate(time.Minute) + 10*time.Minute
		day := 24 * time.Hour
		m := New(flow.NewInventory(), Settings{Down: 1 << 20, Schedule: []Window{{From: begins % day, To: (begins + time.Hour) % day, Down: limitOf(0), Up: limitOf(7 << 10)}}})
		for range 3 {
			if m.Down().Limit() != 1<<20 || m.Up().Limit() != 0 {
				t.Fatal(m.Now())
			}
			time.Sleep(11 * time.Minute)
			if m.Down().Limit() != 0 || m.Up().Limit() != 7<<10 || !m.Now().Scheduled {
				t.Fatal(m.Now())
			}
			time.Sleep(day - 11*time.Minute)
		}
	})
}
