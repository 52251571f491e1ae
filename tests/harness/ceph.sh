#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Ceph cluster of one monitor and one OSD in a directory, for tests: without privileges, without systemd, without a manager.
#
#   ceph.sh missing              why this machine cannot have one; status 1 then
#   ceph.sh start DIRECTORY PID  makes it with the pool `sluice`, and starts it; DIRECTORY/ceph.conf names its keyring. It
#                                is stopped when the process PID has ended
#   ceph.sh kill DIRECTORY       kills the OSD;  ceph.sh osd DIRECTORY  starts it again with what it has stored
#   ceph.sh stop DIRECTORY       kills all of it, and removes the directory
#
# The path of DIRECTORY is short (Unix sockets are in it). The store of the OSD is a sparse file there.
set -euo pipefail
PATH=$PATH:/usr/sbin:/usr/local/sbin

free_port() { # one of those that the sandbox of a loader permits
    python3 - <<'END'
import random, socket
while True:
    port = random.randint(7300, 7568)
    try:
        socket.socket().bind(("127.0.0.1", port))
        print(port)
        break
    except OSError:
        pass
END
}

write_conf() { # DIRECTORY FSID PORT
    cat > "$1/ceph.conf" <<END
[global]
fsid = $2
mon host = [v2:127.0.0.1:$3]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $1/keyring
run dir = $1
admin socket = $1/\$name.asok
pid file = $1/\$name.pid
log file = $1/\$name.log
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 1
mon warn on insecure global id reclaim allowed = false
osd heartbeat interval = 1
ms bind port min = 6800
ms bind port max = 7299
[client]
admin socket =
log file =
[mon.a]
mon data = $1/mon
[osd]
osd data = $1/osd
osd objectstore = bluestore
bluestore block size = 1073741824
bluestore fsck on mount = false
bluestore cache size = 16777216
osd memory target = 939524096
osd max object size = 134217728
osd class load list = *
osd class default list = *
END
}

write_keys() { # DIRECTORY
    ceph-authtool -C "$1/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$1/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool "$1/keyring" --gen-key -n client.reader --cap mon 'allow r' --cap osd 'allow r pool=sluice'
    ceph-authtool "$1/keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
} > /dev/null

start() {
    local directory=$1 fsid osd port
    fsid=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    port=$(free_port)
    write_conf "$directory" "$fsid" "$port"
    write_keys "$directory"
    export CEPH_CONF=$directory/ceph.conf
    monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port]" "$directory/monmap" > /dev/null
    ceph-mon -i a --mkfs --monmap "$directory/monmap" --keyring "$directory/keyring"
    ceph-mon -i a
    ceph osd new "$osd" > /dev/null
    ceph-osd -i 0 --mkfs --osd-uuid "$osd" 2> /dev/null
    start_osd "$directory"
    ceph osd pool create sluice 8 8 > /dev/null 2>&1
}

# For an owner that was killed.
guard() { # DIRECTORY PID
    while [ -d "$1" ] && kill -0 "$2" 2> /dev/null; do sleep 1; done
    [ ! -d "$1" ] || "$0" stop "$1"
}

start_osd() {
    CEPH_CONF=$1/ceph.conf ceph-osd -i 0 > /dev/null 2>&1
}

end() { # DIRECTORY NAME
    local pid
    pid=$(cat "$1/$2.pid" 2> /dev/null) || return 0
    kill -9 "$pid" 2> /dev/null || true
    while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
}

case ${1:-} in
missing)
    for program in ceph-mon ceph-osd ceph-authtool monmaptool ceph rados python3; do
        command -v "$program" > /dev/null || { echo "there is no $program (Debian: ceph-mon, ceph-osd)"; exit 1; }
    done ;;
start)
    mkdir -p "$2/mon" "$2/osd"
    guard "$2" "$3" < /dev/null > /dev/null 2>&1 &
    start "$2" ;;
osd) start_osd "$2" ;;
kill) end "$2" osd.0 ;;
stop) end "$2" osd.0; end "$2" mon.a; rm -rf "$2" ;;
*) sed -n '3,12p' "$0"; exit 2 ;;
esac
