# SPDX-License-Identifier: GPL-2.0
"""How many instructions a guest executes, and in which functions of its kernel.

QEMU's emulation counts, with a plugin (host/insn_count.c): the guest does not notice. The guest has
one CPU, as additions by two at a time may be lost, and its kernel stands where it was linked to.
"""

import array
import bisect
import re
from pathlib import Path

import setup
import vm

GRAIN = 16                  # bytes of code that share a counter, as in the plugin
TEXT = 0xffffffff81000000, 48 * vm.MIB      # the kernel's, without KASLR
MODULES = 0xffffffffc0000000, 8 * vm.MIB
RANGES = [TEXT, MODULES]
APPEND = "nokaslr"          # for the guest's kernel
DRIVER = "virtio_balloon"


def available(qemu):
    return "plugin" in setup.output(qemu, "-help")


def plugin():
    source, header = (setup.HERE / "host" / name for name in ("insn_count.c", "qemu_plugin.h"))

    def build(new):
        setup.long_run("Building the plugin that counts instructions",
                       ["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o",
                        new / "insn_count.so", source], setup.CACHE / "plugin.log")

    key = setup.digest(source, header, setup.compiler())
    return setup.cached(setup.CACHE / "build" / f"plugin-{key}", build) / "insn_count.so"


def qemu_args(file):
    """For a guest whose counts are to be in `file`."""
    Path(file).unlink(missing_ok=True)
    ranges = "".join(f",range={start:#x}+{size:#x}" for start, size in RANGES)
    return ["-plugin", f"{plugin()},out={file}{ranges}"]


class Counts:
    """What has been executed up to a moment."""

    def __init__(self, total, places):
        self.total, self.places = total, places

    @classmethod
    def read(cls, file):
        words = array.array("Q")
        with open(file, "rb") as source:
            words.frombytes(source.read())
        return cls(words[0], words[1:])

    def since(self, other):
        return Counts(self.total - other.total,
                      array.array("Q", (now - then for now, then
                                        in zip(self.places, other.places))))

    def executed(self):
        """(address, instructions) of every place where there were any."""
        base = 0
        for start, size in RANGES:
            for number in range(size // GRAIN):
                if self.places[base + number]:
                    yield start + number * GRAIN, self.places[base + number]
            base += size // GRAIN


class Symbols:
    """The functions of a running guest's kernel and of its modules."""

    def __init__(self, guest):
        code, text = guest.sh("grep -i ' [tw] ' /proc/kallsyms", timeout=120)
        found = sorted((int(address, 16), name, module) for address, name, module in
                       re.findall(r"(?m)^([0-9a-f]+) \S (\S+)(?:\t\[(\S+)\])?$", text))
        if code or not found or not found[-1][0]:
            raise vm.GuestError("the guest does not tell where its functions are")
        self.starts = [address for address, *_ in found]
        self.names = [(name, module) for _, name, module in found]

    def at(self, address):
        """(name, module or "") of the function there."""
        number = bisect.bisect_right(self.starts, address) - 1
        return self.names[number] if number >= 0 else ("?", "")

    def functions(self, counts):
        """{(function, module): instructions}, the most first."""
        found = {}
        for address, number in counts.executed():
            where = self.at(address)
            found[where] = found.get(where, 0) + number
        return dict(sorted(found.items(), key=lambda item: -item[1]))
