#!/bin/sh
# Before the files go, and not before an upgrade: "upgrade" is what Debian says then, and 1 what RPM does.
set -e
case "$1" in upgrade | 1) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now micronode.service
