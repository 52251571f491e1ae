#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs scenario tests in a virtual machine with Debian's cloud kernel, where cgroup version 2 is the only hierarchy:
# as root, and as a user in a delegated subtree. Prints their lines with the prefix "root." or "user."
#   run.sh ROOT BUILD
# It needs qemu-system-x86 and busybox-static; the kernel is downloaded with apt-get, or SLUICE_VM_KERNEL is a directory
# with an unpacked linux-image package. Without /dev/kvm the machine is emulated, which takes minutes.
set -u -o pipefail
export LC_ALL=C
[ $# -eq 2 ] || { echo "usage: $0 ROOT BUILD"; exit 2; }
root=$1 build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() {
    echo "SKIP cgroup2: $1"
    exit 0
}

[ "${SLUICE_LONG:-}" = 1 ] || skip "only with --long"
for program in qemu-system-x86_64 busybox mke2fs ldd setpriv; do
    command -v "$program" >"$scratch/where" || skip "$program is not installed (qemu-system-x86, busybox-static)"
done

# ---- the kernel: vmlinuz and the modules of its virtio disk

kernel=${SLUICE_VM_KERNEL:-}
if [ -z "$kernel" ]; then
    kernel=$scratch/kernel
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }')
    [ -n "$package" ] || skip "apt finds no linux-image-cloud-amd64; SLUICE_VM_KERNEL is not set"
    (cd "$scratch" && apt-get download "$package" >/dev/null 2>&1 && dpkg -x "$package"_*.deb "$kernel") ||
        skip "$package cannot be downloaded; SLUICE_VM_KERNEL is not set"
fi
vmlinuz=$(find "$kernel/boot" -name 'vmlinuz-*' | head -1)
[ -n "$vmlinuz" ] || skip "there is no vmlinuz in $kernel/boot"

initramfs=$scratch/initramfs
mkdir -p "$initramfs"/{bin,dev,proc,sys,new}
cp "$(command -v busybox)" "$initramfs/bin/busybox"
modules=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk)
for module in "${modules[@]}"; do
    find "$kernel/lib/modules" -name "$module.ko" -exec cp {} "$initramfs/" \;
done
cat >"$initramfs/init" <<END
#!/bin/busybox sh
echo "init of the tests"
for module in ${modules[*]}; do
    [ ! -e /\$module.ko ] || /bin/busybox insmod /\$module.ko
done
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t ext4 /dev/vda /new && exec /bin/busybox switch_root /new /bin/init
/bin/busybox poweroff -f
END
chmod +x "$initramfs/init"
(cd "$initramfs" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$scratch/initramfs.gz"

# ---- the disk: the programs of this build, the tests, and the commands that these run

disk=$scratch/disk
mkdir -p "$disk"/{bin,dev,proc,sys,tmp,run,etc,lib64,usr/bin,"$build"/tests,"$root"/launch/demo}
chmod 1777 "$disk/tmp"
echo "root:x:0:0:root:/:/bin/sh" >"$disk/etc/passwd"
copy() { # with its libraries, at the same paths
    local file
    for file in "$@"; do
        cp -L --parents "$file" "$disk"
        ldd "$file" 2>/dev/null | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' |
            while read -r library; do cp -L --parents -n "$library" "$disk"; done
    done
}
tests=(oom)
for name in "${tests[@]}"; do
    copy "$build/tests/scenario_$name"
done
copy "$build"/libexec/sluice-* "$(command -v setpriv)"
cp "$root"/launch/demo/*.gguf "$disk$root/launch/demo/"
for command in grep bash dash env ldd awk cp dd sort find sed cat mkdir; do
    program=$(readlink -f "$(command -v $command)")
    copy "$program"
    for place in /usr/bin /bin; do
        [ -e "$disk$place/$command" ] || ln -s "$program" "$disk$place/$command"
    done
done
ln -sf dash "$disk/bin/sh"
cp "$(command -v busybox)" "$disk/bin/busybox"
cat >"$disk/bin/init" <<END
#!/bin/busybox sh
export PATH=/usr/bin:/bin
busybox=/bin/busybox
\$busybox mount -t proc none /proc
\$busybox mount -t sysfs none /sys
\$busybox mount -t devtmpfs none /dev 2>/dev/null
\$busybox mkdir -p /dev/shm
\$busybox mount -t tmpfs -o mode=1777 none /dev/shm
\$busybox mount -t cgroup2 none /sys/fs/cgroup
\$busybox ip link set lo up
exec >/dev/ttyS1 2>&1
if grep -q sluice_slow=1 /proc/cmdline; then export SLUICE_TEST_SLOW=1; fi
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
# A delegated subtree: the tests are in a leaf of it, since a cgroup with controlled children cannot have processes.
user=/sys/fs/cgroup/user
\$busybox mkdir -p \$user/tests
echo +memory >\$user/cgroup.subtree_control
\$busybox chown -R 1000:1000 \$user
for name in ${tests[*]}; do
    echo "begin root"
    "$build/tests/scenario_\$name"
    echo "begin user"
    (echo 0 >\$user/tests/cgroup.procs
     SLUICE_TEST_CGROUP=\$user $(command -v setpriv) --reuid 1000 --regid 1000 --clear-groups "$build/tests/scenario_\$name")
done
echo "end"
\$busybox sync
\$busybox poweroff -f
END
chmod +x "$disk/bin/init"
size=$(($(du -sm "$disk" | cut -f1) * 2 + 128))
mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -m 0 -d "$disk" "$scratch/disk.img" "${size}M" 2>"$scratch/mke2fs" || {
    echo "not ok cgroup2: mke2fs: $(tail -1 "$scratch/mke2fs")"
    exit 1
}

# ---- the run

machine() { # SECONDS ACCELERATOR CPU SLOW
    exec timeout "$1" qemu-system-x86_64 -accel "$2" -cpu "$3" -smp 2 -m 2048 -nodefaults -display none \
        -no-reboot -kernel "$vmlinuz" -initrd "$scratch/initramfs.gz" -append "console=ttyS0 panic=-1 quiet sluice_slow=$4" \
        -drive "file=$scratch/disk.img,format=raw,if=virtio,cache=unsafe" \
        -serial "file:$scratch/console" -serial "file:$scratch/output" >"$scratch/qemu" 2>&1
}

# Some hosts have a /dev/kvm that runs no ordinary kernel: then its init prints nothing, and the machine is emulated.
accelerator=tcg limit=1500
if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
    machine 300 kvm host,-arch-capabilities 0 &
    pid=$!
    for ((i = 0; i < 100; i++)); do
        grep -q "init of the tests" "$scratch/console" 2>/dev/null && accelerator=kvm limit=300 && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    [ "$accelerator" = kvm ] || kill $pid 2>/dev/null
    wait $pid 2>/dev/null
fi
if [ "$accelerator" = tcg ]; then
    rm -f "$scratch/console" "$scratch/output"
    (machine $limit tcg max 1)
fi
tr -d '\r' <"$scratch/output" | awk '
    $1 == "begin" { who = $2; next }
    $1 == "end" { ended = 1; next }
    $1 == "not" || $1 == "ok" || $1 == "SKIP" {
        name = $1 == "not" ? 3 : 2
        $name = who "." $name
        failed = failed || $1 == "not"
    }
    { print }
    END { exit failed || !ended }
' && exit 0
[ -s "$scratch/output" ] || skip "the machine did not start ($accelerator): $(tail -1 "$scratch/qemu")"
tail -20 "$scratch/console" | sed 's/^/# console: /'
grep -q '^end' <(tr -d '\r' <"$scratch/output") || echo "not ok cgroup2: the machine ended early, or took $limit s"
exit 1
