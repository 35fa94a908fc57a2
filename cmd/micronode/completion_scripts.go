package main

import (
	"fmt"
	"strings"
)

// Each script finds its point in the command line by walking over the words
// before the cursor, and then offers what can follow. They are written line by
// line: package text/template calls methods by names that the linker cannot see,
// and then the linker keeps every method of the program (ADR 81).

// script is a script that is being written.
type script struct{ strings.Builder }

func (s *script) add(format string, args ...any) { fmt.Fprintf(s, format, args...) }

// bashScript completes in bash.
func bashScript(all completionPoints) string {
	var s script
	s.WriteString(bashHead)
	s.add("        %s) skip=1 ;;\n        -*) ;;\n        *)\n            case \"$place ${words[i]}\" in\n", strings.Join(all.ValueFlags(), "|"))
	for _, at := range all {
		for _, one := range at.Commands {
			s.add("            '%s %s') place='%s' ;;\n", at.Path, one.Name, childPath(at.Path, one.Name))
		}
	}
	s.WriteString(bashMiddle)
	for _, at := range all {
		s.add("    %s)\n        case $prev in\n", quoted(at.Path))
		for _, one := range at.Options {
			if one.TakesValue {
				s.add("        %s) %s ;;\n", strings.Join(one.Names(), "|"), bashOffer(one.Value))
			}
		}
		s.WriteString("        *)\n")
		flags := "values='" + strings.Join(at.Flags(), " ") + "'"
		if at.Argument.Files || len(at.Words()) > 0 {
			offer := "values='" + strings.Join(at.Words(), " ") + "'"
			if at.Argument.Files {
				offer = bashFiles
			}
			s.add("            if [[ $cur == -* ]]; then\n                %s\n            else\n                %s\n            fi\n", flags, offer)
		} else {
			s.add("            %s\n", flags)
		}
		s.WriteString("            ;;\n        esac\n        ;;\n")
	}
	s.WriteString(bashTail)
	return s.String()
}

const bashFiles = "compopt -o default 2>/dev/null; return"

func bashOffer(hint valueHint) string {
	switch {
	case hint.Files:
		return bashFiles
	case len(hint.Words) > 0:
		return "values='" + strings.Join(hint.Words, " ") + "'"
	default:
		return "return"
	}
}

const bashHead = `# Completion of micronode for bash. Load it with:
#   source <(micronode completion bash)
_micronode() {
    local words=() word glue='' skip='' place='' values='' i
    COMPREPLY=()

    # Bash takes words apart at = and :, which are part of ours.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((${#words[@]})) && [[ -n $glue || $word =~ ^[:=]+$ ]]; then
            words[${#words[@]}-1]+=$word
            [[ $word =~ ^[:=]+$ ]] && glue=1 || glue=''
        else
            words+=("$word")
        fi
    done
    ((${#words[@]})) || return

    local last=$((${#words[@]} - 1)) prev=''
    local cur=${words[last]} whole=${words[last]} lead=''
    ((last)) && prev=${words[last-1]}
    for ((i = 0; i < last; i++)); do
        if [[ -n $skip ]]; then
            skip=''
            continue
        fi
        case ${words[i]} in
`

const bashMiddle = `            esac
            ;;
        esac
    done
    if [[ $cur == --*=* ]]; then
        lead=${cur%%=*}=
        prev=${cur%%=*}
        cur=${cur#*=}
    fi

    case $place in
`

const bashTail = `    esac

    # What bash takes for earlier words must not be repeated.
    local raw=${COMP_WORDS[COMP_CWORD]} before
    [[ $raw =~ ^[:=]+$ ]] && raw=''
    before=${whole%"$raw"}
    for word in $(compgen -W "$values" -- "$cur"); do
        word=$lead$word
        COMPREPLY+=("${word#"$before"}")
    done
}
complete -F _micronode micronode
`

// zshScript completes in zsh.
func zshScript(all completionPoints) string {
	var s script
	s.WriteString(zshHead)
	s.add("        (%s) skip=1 ;;\n        (-*) ;;\n        (*)\n            case \"$place $word\" in\n", strings.Join(all.ValueFlags(), "|"))
	for _, at := range all {
		for _, one := range at.Commands {
			s.add("            ('%s %s') place='%s' ;;\n", at.Path, one.Name, childPath(at.Path, one.Name))
		}
	}
	s.WriteString(zshMiddle)
	for _, at := range all {
		s.add("    (%s)\n        case $previous in\n", quoted(at.Path))
		for _, one := range at.Options {
			if one.TakesValue {
				s.add("        (%s) %s ;;\n", strings.Join(one.Names(), "|"), zshOffer(one.Value))
			}
		}
		s.WriteString("        esac\n        options=(\n")
		for _, one := range at.Options {
			s.add("            %s\n", quoted(zshItem("--"+one.Long, one.Help)))
		}
		s.WriteString("        )\n")
		if len(at.Commands) > 0 {
			s.WriteString("        choices=(\n")
			for _, one := range at.Commands {
				s.add("            %s\n", quoted(zshItem(one.Name, one.Help)))
			}
			s.WriteString("        )\n")
		}
		rest := "_describe option options"
		switch {
		case at.Argument.Files:
			rest = "_files"
		case len(at.Argument.Words) > 0:
			rest = "compadd -- " + strings.Join(at.Argument.Words, " ")
		case len(at.Commands) > 0:
			rest = "_describe command choices"
		}
		s.add("        if [[ $PREFIX == -* ]]; then\n            _describe option options\n        else\n            %s\n        fi\n        ;;\n", rest)
	}
	s.WriteString(zshTail)
	return s.String()
}

func zshOffer(hint valueHint) string {
	switch {
	case hint.Files:
		return "_files; return"
	case len(hint.Words) > 0:
		return "compadd -- " + strings.Join(hint.Words, " ") + "; return"
	default:
		return "return"
	}
}

func zshItem(name, help string) string { return strings.ReplaceAll(name, ":", `\:`) + ":" + help }

const zshHead = `#compdef micronode
# Completion of micronode for zsh. Save it as _micronode in a folder of $fpath,
# or load it with:
#   source <(micronode completion zsh)
_micronode() {
    local place='' skip='' previous=$words[CURRENT-1] word
    local -a choices options
    for word in $words[2,CURRENT-1]; do
        if [[ -n $skip ]]; then
            skip=''
            continue
        fi
        case $word in
`

const zshMiddle = `            esac
            ;;
        esac
    done
    if [[ $PREFIX == --*=* ]]; then
        previous=${PREFIX%%=*}
        compset -P '*='
    fi
    case $place in
`

const zshTail = `    esac
}
if [[ $funcstack[1] == _micronode ]]; then
    _micronode "$@"
else
    compdef _micronode micronode
fi
`

// fishScript completes in fish.
func fishScript(all completionPoints) string {
	var s script
	s.WriteString(fishHead)
	s.add("            case %s\n                set skip 1\n            case '-*'\n            case '*'\n                switch \"$place $word\"\n", strings.Join(all.ValueFlags(), " "))
	for _, at := range all {
		for _, one := range at.Commands {
			s.add("                    case '%s %s'\n                        set place '%s'\n", at.Path, one.Name, childPath(at.Path, one.Name))
		}
	}
	s.WriteString(fishTail)
	for _, at := range all {
		line := "complete -c micronode -n '__micronode_at " + at.Path + "'"
		for _, one := range at.Commands {
			s.add("%s -a %s -d %s\n", line, one.Name, fishQuoted(one.Help))
		}
		if at.Argument.Files {
			s.add("%s -F\n", line)
		}
		if len(at.Argument.Words) > 0 {
			s.add("%s -a '%s'\n", line, strings.Join(at.Argument.Words, " "))
		}
		for _, one := range at.Options {
			s.add("%s -l %s", line, one.Long)
			if one.Short != "" {
				s.add(" -s %s", one.Short)
			}
			switch {
			case one.Value.Files:
				s.WriteString(" -r -F")
			case one.TakesValue:
				s.WriteString(" -x")
				if len(one.Value.Words) > 0 {
					s.add(" -a '%s'", strings.Join(one.Value.Words, " "))
				}
			}
			s.add(" -d %s\n", fishQuoted(one.Help))
		}
	}
	return s.String()
}

func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

const fishHead = `# Completion of micronode for fish. Save it as
#   ~/.config/fish/completions/micronode.fish
function __micronode_at
    set -l place ''
    set -l skip ''
    set -l words (commandline -opc)
    for word in $words[2..]
        if test -n "$skip"
            set skip ''
            continue
        end
        switch $word
`

const fishTail = `                end
        end
    end
    test "$place" = "$argv"
end
complete -c micronode -f
`

// powershellScript completes in PowerShell.
func powershellScript(all completionPoints) string {
	var s script
	s.WriteString(powershellHead)
	s.add("    $takesValue = @(%s)\n    $commands = @(", quotedWords(all.ValueFlags(), ", "))
	for _, at := range all {
		for _, one := range at.Commands {
			s.add("\n        '%s %s'", at.Path, one.Name)
		}
	}
	s.WriteString(powershellMiddle)
	for _, at := range all {
		s.add("        %s {\n            switch -CaseSensitive ($previous) {\n", quoted(at.Path))
		for _, one := range at.Options {
			if !one.TakesValue {
				continue
			}
			for _, name := range one.Names() {
				s.add("                '%s' { %s; break }\n", name, quotedWords(one.Value.Words, "; "))
			}
		}
		s.add("                default {\n                    if ($wordToComplete.StartsWith('-')) { %s }\n                    else { %s }\n                }\n            }\n        }\n",
			quotedWords(at.Flags(), "; "), quotedWords(at.Words(), "; "))
	}
	s.WriteString(powershellTail)
	return s.String()
}

const powershellHead = `# Completion of micronode for PowerShell. Load it with:
#   micronode completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName micronode -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
`

const powershellMiddle = `
    )
    $place = ''
    $previous = ''
    $skip = $false
    foreach ($element in $commandAst.CommandElements | Select-Object -Skip 1) {
        if ($element.Extent.EndOffset -ge $cursorPosition) { break }
        $word = $element.Extent.Text
        $previous = $word
        if ($skip) { $skip = $false; continue }
        if ($takesValue -ccontains $word) { $skip = $true; continue }
        if ($word.StartsWith('-')) { continue }
        if ($commands -ccontains "$place $word") { $place = "$place $word".Trim() }
    }
    $offers = switch -CaseSensitive ($place) {
`

const powershellTail = `    }
    $offers | Where-Object { $_ -like "$wordToComplete*" } | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
`

// quoted is a text in quotes, as bash and zsh read it.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// quotedWords are words without quotes in them, each in quotes.
func quotedWords(words []string, separator string) string {
	if len(words) == 0 {
		return ""
	}
	return "'" + strings.Join(words, "'"+separator+"'") + "'"
}

func childPath(path, name string) string { return strings.TrimSpace(path + " " + name) }
