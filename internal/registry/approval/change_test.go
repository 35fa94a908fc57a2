package approval_test

import (
	"encoding/json"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/registry/approval"
)

const emptyID = "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"

func TestChangesAreRead(t *testing.T) {
	put := `{"item":{"addrs":["h:1"],"id":"edge-1","kind":"node"},"op":"put"}`
	remove := `{"id":"edge-2","op":"delete"}`
	for name, c := range map[string]struct{ ending, text, want string }{
		"JSON":          {".json", `{"ops":[{"op":"delete","id":"x"}]}`, `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"x"}]}`},
		"all of it":     {".json", `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`, `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`},
		"by content":    {"", "\n {\"ops\":[1]}", `{"schema_version":"1.0.0","ops":[1]}`},
		"TOML":          {".toml", "[[put]]\nkind='node'\nid='edge-1'\naddrs=['h:1']\n[[delete]]\nid='edge-2'\n", `{"schema_version":"1.0.0","ops":[` + put + `,` + remove + `]}`},
		"TOML, content": {".txt", "[[delete]]\nid='edge-2'\n", `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
		"JSON like it":  {".json", `{"delete":[{"id":"edge-2"}]}`, `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
	} {
		change, err := approval.ParseChange("change"+c.ending, []byte(c.text))
		if got, _ := json.Marshal(change); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestChangesThatCannotBeProposed(t *testing.T) {
	for name, c := range map[string]struct{ ending, text, told string }{
		"nothing":        {".json", "{}", "it contains no operation"},
		"an empty file":  {"", "", "it contains no operation"},
		"no object":      {".json", "[]", "it is not a JSON object"},
		"half":           {".json", `{"ops":[1]`, "it is not valid JSON"},
		"half a member":  {".json", `{"ops":[1`, "it is not valid JSON"},
		"twice":          {".json", `{"ops":[1],"ops":[2]}`, `"ops" is there twice`},
		"more":           {".json", `{"ops":[1]}{}`, "data follows"},
		"unknown":        {".json", `{"opps":[1]}`, `"opps" is not known here`},
		"a wrong type":   {".json", `{"ops":{}}`, `"ops" has an invalid value`},
		"more in a base": {".json", `{"ops":[1],"base":{"versions":1}}`, `"base" has an invalid value`},
		"a deletion":     {".toml", "[[delete]]\nname='x'\n", `"delete" has an invalid value`},
		"an empty one":   {".toml", "[[delete]]\n", "a deletion has no id"},
		"no TOML":        {".toml", "[[put\n", "it is not valid TOML"},
		"a fraction":     {".toml", "[[put]]\nm=1.5\n", "put[0].m is not a string, a whole number"},
		"a day":          {".toml", "[[put]]\n[[put.deep]]\nx=[1979-05-27]\n", "put[0].deep[0].x[0] is not a string"},
	} {
		_, err := approval.ParseChange("change"+c.ending, []byte(c.text))
		if fault.KindOf(err) != fault.Malformed || !strings.Contains(err.Error(), c.told) || !strings.Contains(fault.NextOf(err), "registry propose --help") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
