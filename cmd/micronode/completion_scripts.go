package main

// Each script finds its point in the command line by walking over the words
// before the cursor, and then offers what can follow.

var bashScript = newScript("bash", `# Completion of micronode for bash. Load it with:
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
        {{join .ValueFlags "|"}}) skip=1 ;;
        -*) ;;
        *)
            case "$place ${words[i]}" in
            {{- range $at := .}}{{range .Commands}}
            '{{$at.Path}} {{.Name}}') place='{{child $at.Path .Name}}' ;;
            {{- end}}{{end}}
            esac
            ;;
        esac
    done
    if [[ $cur == --*=* ]]; then
        lead=${cur%%=*}=
        prev=${cur%%=*}
        cur=${cur#*=}
    fi

    case $place in
    {{- range .}}
    {{quote .Path}})
        case $prev in
        {{- range .Options}}{{if .TakesValue}}
        {{join .Names "|"}}) {{template "offer" .Value}} ;;
        {{- end}}{{end}}
        *)
            {{- if or .Argument.Files .Words}}
            if [[ $cur == -* ]]; then
                values='{{join .Flags " "}}'
            else
                {{if .Argument.Files}}compopt -o default 2>/dev/null; return{{else}}values='{{join .Words " "}}'{{end}}
            fi
            {{- else}}
            values='{{join .Flags " "}}'
            {{- end}}
            ;;
        esac
        ;;
    {{- end}}
    esac

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
{{- define "offer"}}{{if .Files}}compopt -o default 2>/dev/null; return{{else if .Words}}values='{{join .Words " "}}'{{else}}return{{end}}{{end}}
`)

var zshScript = newScript("zsh", `#compdef micronode
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
        ({{join .ValueFlags "|"}}) skip=1 ;;
        (-*) ;;
        (*)
            case "$place $word" in
            {{- range $at := .}}{{range .Commands}}
            ('{{$at.Path}} {{.Name}}') place='{{child $at.Path .Name}}' ;;
            {{- end}}{{end}}
            esac
            ;;
        esac
    done
    if [[ $PREFIX == --*=* ]]; then
        previous=${PREFIX%%=*}
        compset -P '*='
    fi
    case $place in
    {{- range .}}
    ({{quote .Path}})
        case $previous in
        {{- range .Options}}{{if .TakesValue}}
        ({{join .Names "|"}}) {{if .Value.Files}}_files; return{{else if .Value.Words}}compadd -- {{join .Value.Words " "}}; return{{else}}return{{end}} ;;
        {{- end}}{{end}}
        esac
        options=(
            {{- range .Options}}
            {{quote (item (printf "--%s" .Long) .Help)}}
            {{- end}}
        )
        {{- if .Commands}}
        choices=(
            {{- range .Commands}}
            {{quote (item .Name .Help)}}
            {{- end}}
        )
        {{- end}}
        if [[ $PREFIX == -* ]]; then
            _describe option options
        {{- if .Argument.Files}}
        else
            _files
        {{- else if .Argument.Words}}
        else
            compadd -- {{join .Argument.Words " "}}
        {{- else if .Commands}}
        else
            _describe command choices
        {{- else}}
        else
            _describe option options
        {{- end}}
        fi
        ;;
    {{- end}}
    esac
}
if [[ $funcstack[1] == _micronode ]]; then
    _micronode "$@"
else
    compdef _micronode micronode
fi
`)

var fishScript = newScript("fish", `# Completion of micronode for fish. Save it as
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
            case {{join .ValueFlags " "}}
                set skip 1
            case '-*'
            case '*'
                switch "$place $word"
                    {{- range $at := .}}{{range .Commands}}
                    case '{{$at.Path}} {{.Name}}'
                        set place '{{child $at.Path .Name}}'
                    {{- end}}{{end}}
                end
        end
    end
    test "$place" = "$argv"
end
complete -c micronode -f
{{range $at := . -}}
{{range .Commands -}}
complete -c micronode -n '__micronode_at {{$at.Path}}' -a {{.Name}} -d {{fish .Help}}
{{end}}{{if .Argument.Files -}}
complete -c micronode -n '__micronode_at {{$at.Path}}' -F
{{end}}{{if .Argument.Words -}}
complete -c micronode -n '__micronode_at {{$at.Path}}' -a '{{join .Argument.Words " "}}'
{{end}}{{range .Options -}}
complete -c micronode -n '__micronode_at {{$at.Path}}' -l {{.Long}}{{if .Short}} -s {{.Short}}{{end}}
{{- if .Value.Files}} -r -F{{else if .TakesValue}} -x{{if .Value.Words}} -a '{{join .Value.Words " "}}'{{end}}{{end}} -d {{fish .Help}}
{{end}}{{end -}}
`)

var powershellScript = newScript("powershell", `# Completion of micronode for PowerShell. Load it with:
#   micronode completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName micronode -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $takesValue = @({{range $i, $name := .ValueFlags}}{{if $i}}, {{end}}'{{$name}}'{{end}})
    $commands = @({{range $i, $at := .}}{{range .Commands}}
        '{{$at.Path}} {{.Name}}'{{end}}{{end}}
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
    {{- range .}}
        {{quote .Path}} {
            switch -CaseSensitive ($previous) {
            {{- range .Options}}{{if .TakesValue}}{{$values := .Value.Words}}{{range .Names}}
                '{{.}}' { {{range $i, $word := $values}}{{if $i}}; {{end}}'{{$word}}'{{end}}; break }
            {{- end}}{{end}}{{end}}
                default {
                    if ($wordToComplete.StartsWith('-')) { {{range $i, $flag := .Flags}}{{if $i}}; {{end}}'{{$flag}}'{{end}} }
                    else { {{range $i, $word := .Words}}{{if $i}}; {{end}}'{{$word}}'{{end}} }
                }
            }
        }
    {{- end}}
    }
    $offers | Where-Object { $_ -like "$wordToComplete*" } | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
`)
