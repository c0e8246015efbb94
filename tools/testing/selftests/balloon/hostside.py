# SPDX-License-Identifier: GPL-2.0
"""What the guest's tests may ask of the host beyond the requests that vm.py answers.

The device's queues are read through QEMU's introspection and the buffers out of the guest's
memory: that shows what the driver really sent, all of it, also where QEMU's own interfaces show
only what they know. It asks nothing of the driver's insides.
"""

import re
import struct
import threading
import time

import vm

STATS_QUEUE, HINT_QUEUE = 2, 3
LAST_REQUESTS = 8           # that are looked at; no more than the size worker posts at a time
SLEEP_SECONDS = 60          # from the wish to sleep until all devices do
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


def last_buffers(guest, queue, most):
    """The contents of the buffers that the device took last from a queue, the last one first."""
    where = {"path": guest.virtio_path(), "queue": queue}
    state = guest.qmp("x-query-virtio-queue-status", **where)
    for back in range(1, min(most, state["last-avail-idx"]) + 1):
        index = (state["last-avail-idx"] - back) % state["vring-num"]
        found = guest.qmp("x-query-virtio-queue-element", index=index, **where)
        yield b"".join(guest_memory(guest, one["addr"], one["len"]) for one in found["descs"])


def last_buffer(guest, queue):
    return next(last_buffers(guest, queue, 1))


def pages_in_order(data, per_page):
    """(pages, those whose PFNs are not all there, aligned and ascending) of a request."""
    pfns = [pfn for pfn, in struct.iter_unpack("<I", data)]
    pages = [pfns[at:at + per_page] for at in range(0, len(pfns), per_page)]
    bad = sum(page[0] % per_page != 0 or page != list(range(page[0], page[0] + per_page))
              for page in pages)
    return len(pages), bad


class StatsWatch:
    """Notes when the guest's statistics come in, on a thread of its own."""

    def __init__(self, guest):
        self.guest = guest
        self.longest = 0
        self.error = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        try:
            last, since = self.guest.stats()["last-update"], time.monotonic()
            while not self.stopping.wait(0.02):
                found, now = self.guest.stats()["last-update"], time.monotonic()
                self.longest = max(self.longest, now - since)
                if found != last:
                    last, since = found, now
        except vm.GuestError as error:
            self.error = error

    def end(self):
        self.stopping.set()
        self.thread.join()
        if self.error:
            raise self.error
        return self.longest


class TestRequests:
    """Handlers named as in vm.HostRequests; `attach` puts them beside those of a running guest."""

    def __init__(self, guest):
        self.guest = guest
        self.sleep = None       # the thread that wakes the guest
        self.asleep = None      # what that one saw
        self.watch = None       # of the statistics
        self.restored = 0       # how often the guest went back to its snapshot

    @classmethod
    def attach(cls, guest):
        own = cls(guest)
        for name in dir(own):
            if name.startswith("do_"):
                setattr(guest.requests, name, getattr(own, name))

    def _status(self):
        return self.guest.qmp("x-query-virtio-status", path=self.guest.virtio_path())

    def do_offered(self):
        """The balloon's feature bits that the device offers, as a number."""
        offered = self._status()["host-features"]
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

    def do_stats_watch(self):
        """Begins to note when statistics come in."""
        self.watch = StatsWatch(self.guest)

    def do_stats_longest(self):
        """Ends that; the longest time without any, in ms."""
        return round(self.watch.end() * 1000)

    def do_requests(self, queue, per_page):
        """Of the last requests for pages of so many PFNs each: how many pages, how many bad."""
        pages = bad = 0
        for data in last_buffers(self.guest, int(queue), LAST_REQUESTS):
            some, wrong = pages_in_order(data, int(per_page))
            pages, bad = pages + some, bad + wrong
        return f"pages={pages} bad={bad}"

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

    def do_modern(self):
        """1 if the device offers VERSION_1, else 0: a legacy device."""
        offered = self._status()["host-features"]
        return int(any("VERSION_1" in text for text in offered["transports"]))

    def do_queues(self):
        """QUEUE=BUFFERS that the device has used so far, modulo 2^16, by the device's numbers."""
        path = self.guest.virtio_path()
        used = {number: self.guest.qmp("x-query-virtio-queue-status", path=path,
                                       queue=number)["used-idx"]
                for number in range(self._status()["num-vqs"])}
        return " ".join(f"q{number}={count}" for number, count in used.items())

    def do_plug(self, *properties):
        """Plugs a balloon with NAME=on|off ...; the guest sees it a little later."""
        pairs = (text.split("=") for text in properties)
        self.guest.plug(**{name: value == "on" for name, value in pairs})

    def do_unplug(self):
        """Returns when the guest has let go of the balloon."""
        self.guest.unplug()

    def do_wake_later(self):
        """Wakes the guest as soon as it is asleep; `woken` tells."""
        seen = len(self.guest.events("SUSPEND"))
        self.sleep = threading.Thread(target=self._wake, args=(seen,), daemon=True)
        self.asleep = None
        self.sleep.start()

    def _wake(self, seen):
        try:
            self.guest.wait_event("SUSPEND", SLEEP_SECONDS, seen)
            self.asleep = self.guest.actual_bytes()
            self.guest.qmp("system_wakeup")
        except vm.GuestError as error:
            self.asleep = error

    def do_woken(self):
        """What "actual" was while the guest slept, in bytes."""
        self.sleep.join(SLEEP_SECONDS)
        if not isinstance(self.asleep, int):
            raise vm.GuestError(f"the guest did not sleep: {self.asleep}")
        return self.asleep

    def do_snapshot_below(self, limit):
        """Saves the whole guest when "actual" is below a limit; 0, or how often it was restored.

        A guest that is restored gets the answer to this again.
        """
        deadline = time.monotonic() + FRESH_SECONDS
        while (actual := self.guest.actual_bytes()) >= int(limit):
            if time.monotonic() > deadline:
                raise vm.GuestError(f"actual stays at {actual}")
        self._monitor("savevm balloon")
        return 0

    def do_restore(self):
        """Sends the guest back to its snapshot: it never gets the answer to this."""
        self._monitor("loadvm balloon")
        self.restored += 1
        return self.restored

    def _monitor(self, command):
        said = self.guest.qmp("human-monitor-command", **{"command-line": command})
        if said.strip():
            raise vm.GuestError(f"{command}: {said.strip()}")
