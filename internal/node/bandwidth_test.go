package node

import (
	"path/filepath"
	"strings"
	"testing"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

func TestWhatIsWrongWithALimitOfBandwidth(t *testing.T) {
	for text, want := range map[string]string{
		`up = "2MB"`:                                    "node.bandwidth.up",
		`up = "1KiB"`:                                   "is too slow for any transfer",
		`down = -1`:                                     "node.bandwidth.down",
		`schedule = ["22:00 up=off"]`:                   `"22:00" is not two times of the day, like 22:00-06:00`,
		`schedule = ["22:00-25:00 up=off"]`:             "is not two times of the day",
		`schedule = ["22:00-06:00"]`:                    "it needs times and a limit",
		`schedule = ["22:00-06:00 up=fast"]`:            `"up=fast" is not a limit, like up=2MiB or down=off`,
		`schedule = ["22:00-06:00 upload=off"]`:         "is not a limit",
		`schedule = ["22:00-06:00 up=1KiB"]`:            "32KiB is the least",
		`schedule = ["22:00-06:00 up=off up=1MiB"]`:     "up has two limits",
		`schedule = ["weekend 22:00-06:00 up=off"]`:     "days are mon, tue, wed, thu, fri, sat and sun",
		`schedule = ["mon-fri"]`:                        "it needs times and a limit",
		`schedule = ["22:00-06:00 up=off", "06:00-08"]`: "it needs times and a limit",
	} {
		file := filepath.Join(t.TempDir(), "node.toml")
		testkit.WriteFile(t, file, "[node.bandwidth]\n"+text+"\n")
		_, err := Load("micronode", config.Sources{File: file})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestHowALimitOfBandwidthIsWritten(t *testing.T) {
	b := BandwidthSection{Up: 2 << 20, Schedule: []string{"22:00-06:00 up=off", "Mon-Fri,sun 08:00-24:00 UP=1MiB down=512KiB/s", "fri-mon 1:05-02:00 down=65536"}}
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	s := b.settings()
	if len(s.Schedule) != 3 || s.Up != 2<<20 || s.Down != 0 {
		t.Fatal(s)
	}
	night, work, late := s.Schedule[0], s.Schedule[1], s.Schedule[2]
	if night.From.Hours() != 22 || night.To.Hours() != 6 || *night.Up != 0 || night.Down != nil || night.Days != [7]bool{} {
		t.Errorf("%+v", night)
	}
	if work.From.Hours() != 8 || work.To != 0 || *work.Up != 1<<20 || *work.Down != 512<<10 || work.Days != [7]bool{true, true, true, true, true, true, false} {
		t.Errorf("%+v", work)
	}
	if late.From.Minutes() != 65 || *late.Down != 64<<10 || late.Days != [7]bool{true, true, false, false, false, true, true} {
		t.Errorf("%+v", late)
	}
}

// A reload changes the limits, and status says what is in force.
func TestALimitOfBandwidthIsReloaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.toml")
	testkit.WriteFile(t, file, "[node.bandwidth]\nup = \"2MiB\"\n")
	options := testOptions(t)
	options.Sources.File = file
	n, err := New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if got := n.Status().Bandwidth; got == nil || got.Up != 2<<20 || got.Down != 0 || got.Scheduled || got.Until != "" {
		t.Fatalf("%+v", got)
	}
	testkit.WriteFile(t, file, "[node.bandwidth]\nup = \"2MiB\"\nschedule = [\"00:00-24:00 up=64KiB down=128KiB\"]\n")
	watcher := config.NewWatcher(flow.NewInventory(), n.loadConfig, n.config.Current(), config.Options{OnResult: n.onReload})
	watcher.AddParticipant(n.participant())
	_ = watcher.Trigger("file")
	watcher.Close()
	_ = watcher.Serve(t.Context())
	if now := n.bandwidth.Now(); now.Up != 64<<10 || now.Down != 128<<10 || !now.Scheduled || !now.Until.IsZero() {
		t.Errorf("%+v", now)
	}
	if n.bandwidth.Up().Limit() != 64<<10 {
		t.Errorf("up %d", n.bandwidth.Up().Limit())
	}
}
