#!/bin/busybox sh
# Init of a guest with its own files. Runs /command, and writes its output to one serial port and its exit status to
# another.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs dev /dev
for each in "tracefs sys/kernel/tracing" "debugfs sys/kernel/debug" "bpf sys/fs/bpf" "cgroup2 sys/fs/cgroup"; do
    set -- $each
    $B mount -t $1 $1 /$2
done
$B mkdir -p /tmp /sbin /usr/sbin
$B --install -s /bin
export PATH=/bin HOME=/tmp TERM=dumb
ip link set lo up
for port in ttyS0 ttyS1; do stty -F /dev/$port raw -echo; done
sh /command </dev/null >/dev/ttyS0 2>&1
echo $? >/dev/ttyS1
poweroff -f
