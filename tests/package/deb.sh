#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package, checks it, unpacks it and runs the programs. The package is not installed.
# shellcheck source-path=SCRIPTDIR source=verdicts.sh
. "$(dirname "${BASH_SOURCE[0]}")/verdicts.sh"
shopt -s lastpipe # verdict notes its failure in this shell

tests=(deb_control deb_contents deb_runs deb_upgrade deb_lintian deb_nbd deb_http deb_rados)
for program in dpkg-deb dpkg-shlibdeps cpack gzip file; do
    have "$program" "${tests[@]}" || exit 0
done
# In a scratch directory, so that nothing appears in the build tree.
(cd "$scratch" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch/cpack") >"$scratch/log" 2>&1 || {
    tail -20 "$scratch/log" | sed 's/^/    /'
    echo "not ok deb_made: cpack failed"
    exit 1
}
deb=$(ls "$scratch"/cpack/sluice_*.deb)
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

field() { dpkg-deb -f "$deb" "$1"; }
{
    [ "$(field Package)" = sluice ] || echo "Package: $(field Package)"
    [ "$(field Version)" = "$version" ] || echo "Version: $(field Version)"
    [ "$(field Architecture)" = "$(dpkg --print-architecture)" ] || echo "Architecture: $(field Architecture)"
    [ "$(basename "$deb")" = "sluice_${version}_$(dpkg --print-architecture).deb" ] || echo "file: $deb"
    field Maintainer | grep -qE '^.+ <.+@.+>$' || echo "Maintainer: $(field Maintainer)"
    field Installed-Size | grep -qE '^[1-9][0-9]*$' || echo "Installed-Size: $(field Installed-Size)"
    depends=$(field Depends)
    for library in libc6 libnng1 libjansson4 liburing2 libpcre2-8-0 libutf8proc2 libmicrohttpd12 libedit2 libncursesw6; do
        echo "$depends" | grep -qE "(^|, )$library( |,|\$)" || echo "Depends lacks $library: $depends"
    done
    echo "$depends" | grep -oE 'lib(nbd|curl|rados)[^,]*'
} | verdict deb_control "control fields are wrong"

dpkg-deb -c "$deb" >"$scratch/list"
{
    for file in usr/bin/sluice usr/libexec/sluice/sluice-run usr/share/sluice/demo/tiny-books-moe-q8_0.gguf \
        usr/share/man/man1/sluice-run.1.gz usr/share/bash-completion/completions/sluice usr/share/zsh/vendor-completions/_sluice \
        usr/lib/systemd/user/sluice.service usr/lib/systemd/system/sluice.service usr/lib/sysusers.d/sluice.conf \
        usr/lib/tmpfiles.d/sluice.conf etc/sluice/sluice.conf etc/sluice/model.env usr/share/doc/sluice/changelog.gz; do
        grep -q " \./$file\$" "$scratch/list" || echo "missing: $file"
    done
    grep -E 'sluice-(loader|fetch|push)-' "$scratch/list"
    grep -vE ' root/root ' "$scratch/list"
    grep -E ' \./(usr/local|home|tmp|root)' "$scratch/list"
} | verdict deb_contents "the package lacks files or has others"

# The packages of loaders of servers, where this build has them: name and library.
others=()
for row in nbd:libnbd0 http:libcurl4 rados:librados2; do
    name=${row%:*}
    [ -x "$build/libexec/sluice-loader-$name" ] || {
        echo "SKIP deb_$name: this build has no sluice-loader-$name"
        continue
    }
    other=$(ls "$scratch"/cpack/sluice-"$name"_*.deb)
    others+=("$other")
    {
        dpkg-deb -c "$other" >"$scratch/list-other"
        for program in loader fetch $([ "$name" = nbd ] || echo push); do
            grep -q " root/root .* \./usr/libexec/sluice/sluice-$program-$name\$" "$scratch/list-other" ||
                cat "$scratch/list-other"
        done
        for depends in "sluice (= $version)" "${row#*:}" libc6; do
            dpkg-deb -f "$other" Depends | grep -qF "$depends" ||
                echo "Depends lacks $depends: $(dpkg-deb -f "$other" Depends)"
        done
    } | verdict "deb_$name" "sluice-$name is wrong"
done

dpkg-deb -x "$deb" "$scratch/root"
{
    grep -q '^ExecStart=/usr/bin/sluice run ' "$scratch/root/usr/lib/systemd/user/sluice.service" ||
        grep ExecStart "$scratch/root/usr/lib/systemd/user/sluice.service"
    printed_ids=$(cd / && env -u SLUICE_ROOT -u SLUICE_LIBEXEC -u SLUICE_BUILD "$scratch/root/usr/bin/sluice" \
        demo -n 8 --temp 0 --output ids 2>"$scratch/demo.log")
    [ "$(echo "$printed_ids" | wc -w)" -ge 8 ] || { echo "demo printed: $printed_ids"; cat "$scratch/demo.log"; }
} | verdict deb_runs "the unpacked package does not run"

# An upgrade restarts an engine that runs: its new processes would be of the other version. The first installation
# starts none. The programs of systemd are stubs.
dpkg-deb -e "$deb" "$scratch/control"
mkdir "$scratch/stubs" "$scratch/systemd"
for program in systemd-sysusers systemd-tmpfiles systemctl deb-systemd-invoke; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\n' "$program" "$scratch/called" >"$scratch/stubs/$program"
    chmod +x "$scratch/stubs/$program"
done
sed "s#/run/systemd/system#$scratch/systemd#" "$scratch/control/postinst" >"$scratch/postinst"
{
    PATH=$scratch/stubs:$PATH sh "$scratch/postinst" configure "" || echo "the first installation fails"
    grep invoke "$scratch/called"
    PATH=$scratch/stubs:$PATH sh "$scratch/postinst" configure 1.0 || echo "an upgrade fails"
    tail -1 "$scratch/called" | grep -qx 'deb-systemd-invoke try-restart sluice.service' || cat "$scratch/called"
} | verdict deb_upgrade "an upgrade does not restart the engine, or an installation starts it"

if have lintian deb_lintian; then
    # Suppressed: requirements of Debian's archive (format of the copyright file, address of the maintainer, a bug that
    # is closed by the first upload).
    lintian --no-cfg --fail-on none --allow-root --suppress-tags \
        no-copyright-file,bogus-mail-host,initial-upload-closes-no-bugs "$deb" "${others[@]}" 2>/dev/null |
        grep '^[EW]:' | verdict deb_lintian "lintian finds errors or warnings"
fi

exit "$failed"
