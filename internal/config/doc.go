// Package config is the mechanism of the configuration: where values come from,
// how they are checked, and how a running node applies new ones.
//
// It knows no setting. Each service declares a struct for its own section and
// checks it; package node combines the structs into one and loads that. What is
// here would otherwise be done a little differently in every service: layers,
// strictness, errors that help, origins, reloads, and the reference for the
// operator.
//
// # A section
//
// A section is a struct whose fields are settings or further sections:
//
//	type Section struct {
//		Addr string          `toml:"addr" doc:"Where the gateway listens." restart:"true"`
//		Idle config.Duration `toml:"idle" doc:"How long a connection may be idle." seed:"idle_timeout"`
//		Body config.Size     `toml:"body" doc:"The largest request body."`
//	}
//
//	func (s *Section) Validate() error {
//		if _, _, err := net.SplitHostPort(s.Addr); err != nil {
//			return config.Invalid("addr", "Write host:port.", "%q is not an address", s.Addr)
//		}
//		return nil
//	}
//
// A setting is a string, bool, int, float64, []string, [Duration], [Size],
// [Secret], or an [Auto] of bool, int, Duration or Size. The tags:
//
//   - toml: its name. Required.
//   - doc: a sentence for the reference. Required.
//   - restart:"true": a change needs a restart of the node.
//   - enum:"auto,on,off": the only texts that it accepts.
//   - unit:"ms": what a bare number counts.
//   - negative:"true": it may be below zero, which is rejected otherwise.
//   - default:"2 × cores": how the reference shows a default that depends on
//     the machine.
//   - seed:"idle_timeout": its name in the seeds. An error about an unknown key
//     with this name names the setting.
//
// A struct that breaks these rules is a programming error: the first Load, in
// the first test, panics and says what to change.
//
// # Layers
//
// [Load] starts with the defaults, which are an ordinary value of the struct,
// and applies the file, the environment and the flags. It keeps the origin of
// every value, for `config show --origin` and for errors. Zero means zero: a
// layer gives a value or it does not, and no value stands for "not given". What
// may be left to the node is an Auto.
//
// # Errors
//
// An unknown key is an error in every layer, and so is a value of the wrong
// type: a misspelt limit that is silently ignored is worse than a node that
// does not start. All errors are reported at once, each on its line with its
// origin and what to do. A section is validated only if all of it could be
// read.
//
// # Reloads
//
// A [Watcher] holds the configuration in force. Signals, changes of the file
// and the API all go through one queue, cfg_updates, to one task. It loads the
// new configuration, lets every [Participant] verify, and only if none rejects
// it stores the new one and calls every Commit. So a reload is rejected or
// applied as a whole, and the [Result] has what changed and what needs a
// restart.
//
// # What it refuses to do
//
// It writes no files. It does not read the environment or the command line by
// itself; the caller passes them in. It does not handle signals, log or count:
// the result of a reload goes to a hook. It never shows a secret, in an error,
// an entry, a log or a document. There are no includes, no templates, no maps
// with keys of the user's choice.
package config
