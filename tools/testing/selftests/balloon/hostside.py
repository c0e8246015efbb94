# SPDX-License-Identifier: GPL-2.0
"""What the guest's tests may ask of the host beyond the requests that vm.py answers.

The device's queues are read through QEMU's introspection and the buffers out of the guest's
memory: that shows what the driver really sent, all of it, also where QEMU's own interfaces show
only what they know. It asks nothing of the driver's insides.
"""

import re
import struct
import time

import vm

DEVICE = vm.BALLOON_QOM + "/virtio-backend"
STATS_QUEUE, HINT_QUEUE = 2, 3
FRESH_SECONDS = 20          # statistics are asked for once a second
MIGRATION_SECONDS = 120     # 1 GiB at full speed takes one or two
FULL_SPEED_MIB = 16384

FEATURES = {
    "VIRTIO_BALLOON_F_MUST_TELL_HOST": 0, "VIRTIO_BALLOON_F_STATS_VQ": 1,
    "VIRTIO_BALLOON_F_DEFLATE_ON_OOM": 2, "VIRTIO_BALLOON_F_FREE_PAGE_HINT": 3,
    "VIRTIO_BALLOON_F_PAGE_POISON": 4, "VIRTIO_BALLOON_F_REPORTING": 5,
}


def guest_memory(guest, address, length):
    """Bytes of the guest's physical memory."""
    text = guest.qmp("human-monitor-command", **{"command-line": f"xp /{length}xb {address:#x}"})
    found = bytes(int(byte, 16) for line in text.splitlines() if ":" in line
                  for byte in re.findall(r"0x([0-9a-f]{2})\b", line.partition(":")[2]))
    if len(found) != length:
        raise vm.GuestError(f"{len(found)} of {length} bytes at {address:#x} could be read")
    return found


def last_buffer(guest, queue):
    """The contents of the buffer that the device took last from a queue."""
    state = guest.qmp("x-query-virtio-queue-status", path=DEVICE, queue=queue)
    index = (state["last-avail-idx"] - 1) % state["vring-num"]
    found = guest.qmp("x-query-virtio-queue-element", path=DEVICE, queue=queue, index=index)
    return b"".join(guest_memory(guest, one["addr"], one["len"]) for one in found["descs"])


class TestRequests:
    """Handlers named as in vm.HostRequests; `attach` puts them beside those of a running guest."""

    def __init__(self, guest):
        self.guest = guest

    @classmethod
    def attach(cls, guest):
        own = cls(guest)
        for name in dir(own):
            if name.startswith("do_"):
                setattr(guest.requests, name, getattr(own, name))

    def do_offered(self):
        """The balloon's feature bits that the device offers, as a number."""
        offered = self.guest.qmp("x-query-virtio-status", path=DEVICE)["host-features"]
        names = [text.partition(":")[0] for text in offered["dev-features"]]
        return sum(1 << FEATURES[name] for name in names if name in FEATURES)

    def do_stats_raw(self):
        """TAG=VALUE of every entry in the statistics buffer that was sent last, in its order."""
        entries = struct.iter_unpack("<HQ", last_buffer(self.guest, STATS_QUEUE))
        return " ".join(f"{tag}={value}" for tag, value in entries)

    def do_stats_fresh(self, times):
        """Returns when statistics have come in so many times from now on."""
        deadline = time.monotonic() + FRESH_SECONDS
        last = self.guest.stats()["last-update"]
        for _ in range(int(times)):
            while (now := self.guest.stats()["last-update"]) == last:
                if time.monotonic() > deadline:
                    raise vm.GuestError(f"no new statistics within {FRESH_SECONDS} s")
                time.sleep(0.02)
            last = now
        return last

    def do_hint_last(self):
        """What the device took last from the hint queue, if that was a command."""
        data = last_buffer(self.guest, HINT_QUEUE)
        return f"len={len(data)} value={int.from_bytes(data[:4], 'little')}"

    def do_ram_normal(self):
        """Pages that the last migration sent in full."""
        return self.guest.qmp("query-migrate").get("ram", {}).get("normal", 0)

    def do_migrate_finish(self):
        """Lets a migration run to its end and the guest go on after it; "none" if there is none."""
        if self.guest.qmp("query-migrate").get("status") is None:
            return "none"
        self.guest.qmp("migrate-set-parameters", **{"max-bandwidth": FULL_SPEED_MIB * vm.MIB})
        deadline = time.monotonic() + MIGRATION_SECONDS
        while (state := self.guest.qmp("query-migrate")["status"]) not in ("completed", "failed",
                                                                           "cancelled"):
            if time.monotonic() > deadline:
                raise vm.GuestError(f"the migration is still {state} after {MIGRATION_SECONDS} s")
            time.sleep(0.05)
        if not self.guest.qmp("query-status")["running"]:
            self.guest.qmp("cont")
        return state
