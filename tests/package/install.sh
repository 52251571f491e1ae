#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `cmake --install` into a directory; the programs must work there without the source tree.
# shellcheck source-path=SCRIPTDIR source=verdicts.sh
. "$(dirname "${BASH_SOURCE[0]}")/verdicts.sh"
shopt -s lastpipe # verdict notes its failure in this shell

prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" 2>&1 ||
    tail -20 "$scratch/install.log" >"$scratch/trouble"
{
    cat "$scratch/trouble" 2>/dev/null
    for file in bin/sluice libexec/sluice/sluice-run libexec/sluice/sluice-tether libexec/sluice/sluice-gateway \
        share/sluice/calibration/prose.txt share/sluice/calibration/code.txt share/sluice/calibration/README.md \
        share/sluice/demo/tiny-books-moe-q8_0.gguf share/man/man1/sluice.1 share/man/man1/sluice-run.1 \
        share/bash-completion/completions/sluice share/zsh/site-functions/_sluice \
        lib/systemd/user/sluice.service lib/systemd/system/sluice.service lib/sysusers.d/sluice.conf \
        lib/tmpfiles.d/sluice.conf etc/sluice/sluice.conf etc/sluice/model.env share/doc/sluice/README.md share/doc/sluice/LICENSE share/doc/sluice/copyright share/doc/sluice/docs/config.md \
        share/doc/sluice/examples/server.conf; do
        [ -f "$prefix/$file" ] || echo "missing: $file"
    done
    while IFS=$'\t' read -r command _; do
        [ "$command" != demo ] || continue
        [ -x "$prefix/libexec/sluice/sluice-$command" ] || echo "missing: sluice-$command"
    done <"$build/manual/commands"
} | verdict install_is_whole "the installation lacks something"

# Outside the source tree, as a user of the installation.
cd / || exit 1
sluice() { env -u SLUICE_ROOT -u SLUICE_LIBEXEC -u SLUICE_BUILD "$prefix/bin/sluice" "$@"; }

# The installed programs must give the same text as those of the build tree.
wanted=$("$build/libexec/sluice-generate" -m "$root/launch/demo/tiny-books-moe-q8_0.gguf" \
    --budget 48MiB -p 'It was a dark' -n 24 --temp 0 -q 2>"$scratch/wanted.log")
{
    got=$(sluice demo -p 'It was a dark' -n 24 --temp 0 -q 2>"$scratch/demo.log") || cat "$scratch/demo.log"
    [ -n "$wanted" ] || cat "$scratch/wanted.log"
    [ "$got" = "$wanted" ] || echo "the installed demo printed '$got', the build tree prints '$wanted'"
    grep -E 'installing|configuring|building' "$scratch/demo.log"
} | verdict install_demo "the installed demo does not run"

{
    sluice help --all | grep -E '^  (test|build) '
    sluice help --all | grep '^  eval ' >/dev/null || echo "help --all lacks eval"
    sluice help run | grep -F -e --print-memory >/dev/null || echo "help run"
    [ "$(sluice --version)" = "sluice $(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")" ] ||
        echo "version: $(sluice --version)"
    sluice build >/dev/null 2>"$scratch/build.log"
    [ $? -eq 2 ] || echo "build did not end with 2"
    grep -q 'this is an installation' "$scratch/build.log" || cat "$scratch/build.log"
    sluice --help | grep -E '^  (build|test) ' && echo "the help lists them"
    grep -E '^\.BR? *(sluice.*(build|test)|build|test)|fB(build|test)|V[E]RB' "$prefix/share/man/man1/sluice.1"
} | verdict install_launcher "the installed launcher is wrong"

if have systemd-analyze install_unit; then
    # %E is expanded; the files it names need not exist.
    unit=$prefix/lib/systemd/user/sluice.service
    {
        grep -qx "ExecStart=$prefix/bin/sluice run -m \${SLUICE_MODEL} --log-format journal --config %E/sluice/sluice.conf" "$unit" ||
            grep ExecStart "$unit"
        HOME=$scratch XDG_RUNTIME_DIR=$scratch systemd-analyze --user --man=no verify "$unit" 2>&1 |
            grep -F "$(basename "$unit")"
    } | verdict install_unit "systemd-analyze verify complains"
fi

# The system unit: its user is made by sysusers.d, its files are those of the installation.
if have systemd-analyze install_system_unit && have systemd-sysusers install_system_unit; then
    unit=$prefix/lib/systemd/system/sluice.service
    mkdir -p "$scratch/machine/etc"
    {
        for line in "ExecStart=$prefix/bin/sluice run -m \${SLUICE_MODEL} --log-format journal --config $prefix/etc/sluice/sluice.conf" \
            "EnvironmentFile=$prefix/etc/sluice/model.env" User=sluice \
            StateDirectory=sluice LogsDirectory=sluice; do
            grep -qxF "$line" "$unit" || echo "lacks: $line"
        done
        systemd-analyze --man=no verify "$unit" 2>&1 | grep -F "$(basename "$unit")"
        systemd-sysusers --root="$scratch/machine" "$prefix/lib/sysusers.d/sluice.conf" 2>&1
        grep -q '^sluice:.*:/var/lib/sluice:' "$scratch/machine/etc/passwd" || cat "$scratch/machine/etc/passwd"
        systemd-tmpfiles --root="$scratch/machine" --create "$prefix/lib/tmpfiles.d/sluice.conf" 2>&1
        [ -d "$scratch/machine/var/lib/sluice" ] || echo "no /var/lib/sluice"
        sed 's/^#.*//' "$prefix/etc/sluice/sluice.conf" >"$scratch/sluice.conf"
        echo changed >"$prefix/etc/sluice/sluice.conf"
        cmake --install "$build" --prefix "$prefix" >/dev/null 2>&1
        grep -qx changed "$prefix/etc/sluice/sluice.conf" || echo "a second installation overwrites etc/sluice"
    } | grep -vE '^Creating (user|group) ' | verdict install_system_unit "the system unit is wrong"
fi

exit "$failed"
