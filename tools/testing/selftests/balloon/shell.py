# SPDX-License-Identifier: GPL-2.0
"""`make shell`: a guest's shell with the balloon loaded. `make target MIB=700`: moves its target.

shell.py          boots the guest; the terminal is its shell until that ends, or Ctrl-] is typed
shell.py target   tells a guest that another terminal has booted how much memory to keep
"""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty

import bench
import run
import setup
import vm
from setup import SetupError, say

OUT = setup.OUT / "shell"
CONTROL = OUT / "control.sock"
LEAVE = b"\x1d"             # Ctrl-]
END_OF_INPUT = b"\x04"      # Ctrl-D
REACH_SECONDS = 30


def parse_arguments():
    default = os.environ.get
    parser = setup.parser("shell.py", __doc__)
    parser.add_argument("command", nargs="?", default="shell", choices=["shell", "target"])
    parser.add_argument("--mem", default=default("MEM") or "2048", metavar="MIB",
                        help="the guest's memory (MEM=, %(default)s)")
    vm.add_qemu(parser)
    parser.add_argument("--mib", default=default("MIB"), metavar="MIB",
                        help="the target: what the guest is to keep (MIB=)")
    return parser.parse_args()


# --- the shell --------------------------------------------------------------------------------

@contextlib.contextmanager
def raw_terminal():
    """Keys go to the guest as they are, Ctrl-C included; put right again in any case."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class Terminal:
    """This terminal, connected to the guest's."""

    def __init__(self, guest):
        self.guest = guest
        self.sock = vm.connect(guest.outdir / "tty.sock")
        self.resized = threading.Event()
        self.sources = [0, self.sock]

    def fit(self, *_):
        self.resized.set()      # from a signal: only noted here

    def _tell_size(self):
        self.resized.clear()
        size = shutil.get_terminal_size()
        self.guest.sh(f"stty -F /dev/hvc0 rows {size.lines} cols {size.columns}")

    def _keys(self):
        """Pass on what was typed; False when the person wants to leave."""
        data = os.read(0, 4096)
        if not data:            # a script's end: the shell's too
            self.sources.remove(0)
            data = END_OF_INPUT
        self.sock.sendall(data)
        return not (sys.stdin.isatty() and LEAVE in data)

    def _screen(self):
        data = self.sock.recv(65536)
        os.write(1, data)
        return bool(data)       # nothing: the guest has ended

    def talk(self):
        signal.signal(signal.SIGWINCH, self.fit)
        self._tell_size()
        self.sock.sendall(b"\n")        # for a prompt: the first was before our time
        going = True
        while going:
            ready, _, _ = select.select(self.sources, [], [], 0.5)
            if self.resized.is_set():
                self._tell_size()
            with contextlib.suppress(ConnectionError):
                going = ((self.sock not in ready or self._screen())
                         and (0 not in ready or self._keys()))
                continue
            going = False           # the guest's end broke the connection


def terminal_args():
    """A terminal for the guest (its tty="hvc0"), and a second control socket for `make target`."""
    return [*vm.socket_args("control"),
            "-chardev", "socket,id=tty,path=tty.sock,server=on,wait=off",
            "-device", "virtconsole,chardev=tty"]


def shell(args):
    mem = bench.mebibytes("MEM", args.mem, run.MIN_MEM_MIB, run.MAX_MEM_MIB, "the guest's memory")
    qemu = vm.prepare("shell", args.qemu)
    setup.own(OUT)
    guest = vm.Guest(OUT, mem_mib=mem, qemu=qemu, tty="hvc0",
                     balloon="deflate-on-oom=on,free-page-hint=on", extra=terminal_args(),
                     programs=["memtouch", "sample"])
    say(f"Booting a guest of {mem} MiB ...")
    with guest:
        guest.stats_interval(1)
        say(f"""\
virtio_balloon is loaded. From another terminal, in this directory:
    make target MIB=700          the guest is to keep 700 MiB; MIB={mem} gives everything back
In the guest: grep balloon_ /proc/vmstat    free -m    memtouch 600 (uses 600 MiB)    dmesg
Leave with `exit` or Ctrl-]; the guest ends then.
""")
        with raw_terminal():
            Terminal(guest).talk()
    say("\nThe guest has ended.")
    return 0


# --- its target -------------------------------------------------------------------------------

def control():
    try:
        return vm.Qmp(CONTROL)
    except OSError:
        raise SetupError("no guest is running: "
                         "`make shell` in another terminal starts one") from None


def wanted(text, mem):
    if not text:
        raise SetupError("MIB is missing: make target MIB=700")
    if re.fullmatch("[0-9]+", text) and int(text) > mem:
        raise SetupError(f"MIB={text} is more than the guest's memory, {mem}")
    return bench.mebibytes("MIB", text, 1, mem, "the guest's memory")


def follow(qmp, target):
    """Say once a second how far the guest is; True when it has reached the target."""
    for _ in range(REACH_SECONDS):
        actual = qmp("query-balloon")["actual"]
        say(f"target {target} MiB, the guest keeps {actual / vm.MIB:.0f} MiB")
        if actual == target * vm.MIB:
            return True
        time.sleep(1)
    return False


def target(args):
    qmp = control()
    try:
        mem = qmp("query-memory-size-summary")["base-memory"] // vm.MIB
        mib = wanted(args.mib, mem)
        qmp("balloon", value=mib * vm.MIB)
        if not follow(qmp, mib):
            say(f"The guest is not there after {REACH_SECONDS} s; it may lack free memory.")
            return 1
    finally:
        qmp.close()
    return 0


def main():
    args = parse_arguments()
    try:
        return target(args) if args.command == "target" else shell(args)
    except vm.GuestError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    setup.guarded(main)
