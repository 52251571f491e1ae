
# Offers the contents of reply; a path when reply is +file or empty.
_sluice_offer() {
    if (( ${#reply} == 0 )) || [[ ${reply[1]} == +file ]]; then
        _files
    else
        compadd -- $reply
    fi
}

_sluice() {
    local -a reply
    local command=${words[2]} before=${words[CURRENT-1]}
    if (( CURRENT == 2 )); then
        _sluice_commands
        _describe -t commands 'command' reply
        return
    fi
    if [[ $command == help ]]; then
        _sluice_commands
        _describe -t commands 'command' reply
        return
    fi
    if [[ $before == -* ]]; then
        _sluice_values $command $before
        if (( ${#reply} > 0 )) && [[ ${reply[1]} != +none ]]; then
            _sluice_offer
            return
        fi
    fi
    if [[ $PREFIX == -* ]]; then
        _sluice_options $command
        _describe -t options 'option' reply
        return
    fi
    _sluice_operands $command:$before
    (( ${#reply} > 0 )) || _sluice_operands $command
    _sluice_offer
}

_sluice "$@"
