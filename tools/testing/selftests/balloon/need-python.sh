#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Everything here is Python; a bare machine has none. The same manners as setup.py: the package is
# named, and asked for, unless YES=1 or nobody is there to ask.
set -eu

command -v python3 >/dev/null && exit 0

install='apt-get install -y --no-install-recommends python3'
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "error: python3 is missing; as root: $install" >&2
	exit 2
fi
echo "Packages to install: python3" >&2
if [ "${YES:-}" != 1 ] && [ -t 0 ]; then
	printf 'Install it with apt-get? [Y/n] ' >&2
	read -r answer
	case $answer in
	'' | y | Y | yes) ;;
	*) exit 2 ;;
	esac
fi
$install >/dev/null 2>&1 || { apt-get update && $install; } >/dev/null
