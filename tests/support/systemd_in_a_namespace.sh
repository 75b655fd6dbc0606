#!/bin/bash
# A systemd of its own in namespaces: its own processes, cgroups, /run, /tmp, /dev, /etc, /opt and /var/lib. It has no unit but the one that
# is given and a few empty targets: those of the machine would set the machine up again, and clean its /tmp. Everything else is
# read-only for it. Needs root.
#
#     unshare --mount bash systemd_in_a_namespace.sh UNIT CLUSTER CERTS PYTHON [PYTHONPATH]
#
# UNIT is the file of a unit; CLUSTER and CERTS become /etc/walktalk/cluster.yaml and certs; PYTHON runs /opt/walktalk/bin/walktalk.
# With DRY=1 it ends before systemd, and shows what could be written.
set -euo pipefail

if [ "${1:-}" != inside ]; then # in a mount namespace: a cgroup of its own, which is removed in the end
    mount --make-rprivate /
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    group=/sys/fs/cgroup/walktalk-systemd-$$
    mkdir "$group"
    (
        echo "$BASHPID" > "$group/cgroup.procs"
        exec unshare --mount --cgroup --pid --fork --uts --ipc --kill-child bash "$0" inside "$@"
    ) || true
    for _ in $(seq 50); do # dead processes leave a moment later
        find "$group" -depth -type d -exec rmdir {} + 2> /dev/null && break
        sleep 0.1
    done
    exit 0
fi
shift
unit=$1 cluster=$2 certs=$3 python=$4 path=${5:-}

mount --make-rprivate /
mount -t proc proc /proc
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup # its root is this namespace's own
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/in/units /run/up /run/work /run/dev
cp "$unit" /run/in/units/
cp "$cluster" /run/in/cluster.yaml
cp -r "$certs" /run/in/certs

# A Python below a folder that only root may enter, such as a home, is made reachable for the unit's user.
home=$("$python" -c 'import sys; print(sys.base_prefix)')
at=/
for part in ${home//\// }; do
    at=${at%/}/$part
    if [ "$at" != "$home" ] && ! [[ $(stat -c %A "$at") == *x ]]; then
        mkdir /run/aside
        mount --bind "$home" /run/aside
        mount -t tmpfs -o mode=755 tmpfs "$at"
        mkdir -p "$home"
        mount --bind /run/aside "$home"
        mount -o remount,bind,ro "$home"
        mount -o remount,bind,ro /run/aside
        break
    fi
done

mount -t tmpfs -o mode=755 tmpfs /run/dev
for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
    mknod -m 666 /run/dev/"${node% *}" c 1 "${node#* }"
done
mkdir -m 1777 /run/dev/shm
mount --bind /run/dev /dev
mount -t overlay -o lowerdir=/etc,upperdir=/run/up,workdir=/run/work overlay /etc
for place in /tmp /var/tmp /opt /var/lib /var/log /usr/lib/systemd/system /usr/lib/systemd/system-generators /etc/systemd/system; do
    mount -t tmpfs -o mode=755 tmpfs "$place"
done
chmod 1777 /tmp /var/tmp
for place in / /sys; do
    mount -o remount,bind,ro "$place"
done
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys

echo "walktalk:x:64999:64999::/var/lib/walktalk:/usr/sbin/nologin" >> /etc/passwd
echo "walktalk:x:64999:" >> /etc/group
mkdir -p /opt/walktalk/bin /etc/walktalk
printf '#!/bin/sh\nexport OMP_NUM_THREADS=1 PYTHONPATH="%s"\nexec "%s" -m walktalk "$@"\n' "$path" "$python" > /opt/walktalk/bin/walktalk
chmod 755 /opt/walktalk/bin/walktalk
cp -r /run/in/cluster.yaml /run/in/certs /etc/walktalk/
chown -R walktalk:walktalk /etc/walktalk
cp /run/in/units/* /etc/systemd/system/
for target in sysinit basic shutdown network-online multi-user; do
    printf '[Unit]\nDescription=nothing\nDefaultDependencies=no\n' > /etc/systemd/system/$target.target
done

if [ -n "${DRY:-}" ]; then
    awk '$4 ~ /^rw/ {print $2, $3}' /proc/mounts
    exit 0
fi
export container=walktalk-test
exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=null
