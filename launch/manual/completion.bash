
_sluice_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }

_sluice_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# Completes the value of an option: one of its names, a path, or nothing.
_sluice_value() {
    local values=$1 word=$2
    case $values in
    '') COMPREPLY=() ;;
    +file) _sluice_files "$word" ;;
    *) _sluice_words "$values" "$word" ;;
    esac
}

_sluice() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-} values operands
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _sluice_words "$(_sluice_commands) --help --version" "$word"
        return
    fi
    if [ "$command" = help ]; then
        _sluice_words "$(_sluice_commands)" "$word"
        return
    fi
    # "--name=value" comes as three words.
    if [ "$word" = '=' ]; then
        word=''
    elif [ "$before" = '=' ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $before in
    -*)
        values=$(_sluice_values "$command" "$before")
        if [ "$values" != +none ] && _sluice_known "$command" "$before"; then
            _sluice_value "$values" "$word"
            return
        fi
        ;;
    esac
    operands=$(_sluice_operands "$command:$before")
    [ -n "$operands" ] || operands=$(_sluice_operands "$command")
    case $word in
    -*) _sluice_words "$(_sluice_options "$command")" "$word" ;;
    *) if [ -n "$operands" ]; then _sluice_words "$operands" "$word"; else _sluice_files "$word"; fi ;;
    esac
}

_sluice_known() {
    local option
    for option in $(_sluice_options "$1"); do
        [ "$option" = "$2" ] && return 0
    done
    return 1
}

complete -F _sluice sluice
