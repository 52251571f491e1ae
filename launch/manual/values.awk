# SPDX-License-Identifier: Apache-2.0
# From lines "option", names, value, text: an option a line, with the names its value can have ("" when any; "+file" a
# path).
function values_of(name, value) {
    if (value == "" || value ~ /^\[/) return "+none"
    if (name == "--preset" || name == "--presets") return presets
    if (name == "--eviction") return eviction
    if (name == "--prediction") return prediction
    if (value ~ /^[A-Z]*(FILE|DIR|MODEL|PROFILE|PATH)[A-Z|]*$/ || name == "--plan" || name == "--trace") return "+file"
    if (value ~ /^[A-Za-z0-9_]+\|[A-Za-z0-9_|]+$/) {
        gsub(/\|/, " ", value)
        return value
    }
    return ""
}

{
    count = split($2, name, " ")
    for (i = 1; i <= count; i++)
        print command, name[i], values_of(name[i], $3), $4
}
