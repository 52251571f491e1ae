
# Offers what is in reply; a path when that is what it says, or when it says nothing.
_sluice_offer() {
    if (( ${#reply} == 0 )) || [[ ${reply[1]} == +file ]]; then
        _files
    else
        compadd -- $reply
    fi
}

_sluice() {
    local -a reply
    local verb=${words[2]} before=${words[CURRENT-1]}
    if (( CURRENT == 2 )); then
        _sluice_verbs
        _describe -t verbs 'verb' reply
        return
    fi
    if [[ $verb == help ]]; then
        _sluice_verbs
        _describe -t verbs 'verb' reply
        return
    fi
    if [[ $before == -* ]]; then
        _sluice_values $verb $before
        if (( ${#reply} > 0 )) && [[ ${reply[1]} != +none ]]; then
            _sluice_offer
            return
        fi
    fi
    if [[ $PREFIX == -* ]]; then
        _sluice_options $verb
        _describe -t options 'option' reply
        return
    fi
    _sluice_operands $verb:$before
    (( ${#reply} > 0 )) || _sluice_operands $verb
    _sluice_offer
}

_sluice "$@"
