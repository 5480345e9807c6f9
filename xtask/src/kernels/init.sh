#!/bin/busybox sh
# Init of a guest with the host's files. Mounts an overlay on them, runs /command there, and writes its output to one
# serial port and its exit status to another.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    $B insmod "$module" || echo "cannot load $module" >/dev/console
done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 hostroot /lower &&
    $B mount -t tmpfs tmpfs /layer && $B mkdir /layer/upper /layer/work &&
    $B mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /new || {
    echo "cannot mount the host's files by 9p or the overlay on them" >/dev/console
    $B poweroff -f
}
$B mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp
for folder in proc sys dev; do $B mount --move /$folder /new/$folder; done
$B mount -t tmpfs tmpfs /new/run
$B cp /command /new/run/command
for each in "tracefs sys/kernel/tracing" "debugfs sys/kernel/debug" "bpf sys/fs/bpf" "cgroup2 sys/fs/cgroup"; do
    set -- $each
    $B mount -t $1 $1 /new/$2
done
$B mkdir -p /new/dev/pts /new/dev/shm
$B mount -t devpts devpts /new/dev/pts
$B mount -t tmpfs tmpfs /new/dev/shm
$B ip link set lo up
for port in ttyS1 ttyS2; do $B stty -F /new/dev/$port raw -echo; done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb
$B chroot /new /bin/sh /run/command </new/dev/null >/new/dev/ttyS1 2>&1
echo $? >/new/dev/ttyS2
$B sync
$B poweroff -f
