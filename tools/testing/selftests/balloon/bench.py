# SPDX-License-Identifier: GPL-2.0
"""What the commands that measure share: numbers from the user, samples of a guest, pictures."""

import re
import subprocess
import threading
import time

import setup
import vm
from setup import SetupError

ALL_DAY = 24 * 3600


# --- what was asked for -----------------------------------------------------------------------

def whole_number(name, text, least, most, unit, why):
    if not re.fullmatch("[0-9]+", text):
        raise SetupError(f'{name}="{text}" is no number of {unit}')
    value = int(text)
    if not least <= value <= most:
        raise SetupError(f"{name}={value}: must be {least} to {most} {unit} ({why})")
    return value


def mebibytes(name, text, least, most, why):
    return whole_number(name, text, least, most, "MiB", why)


# --- a guest, while something goes on in it -----------------------------------------------------

class Sampler:
    """Looks at a guest again and again, on a thread and a shell port of its own.

    Each look goes to add(), which a user of this defines: {name: number}, as guest/sample.c has it.
    """

    def __init__(self, guest, pause_ms):
        self.guest, self.pause_ms = guest, pause_ms
        self.stopping = threading.Event()
        self.error = None
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join(vm.STOP_SECONDS)

    def _watch(self):
        try:
            lines = self.guest.lines(f"sample {self.pause_ms}", timeout=ALL_DAY, port=1)
            for line in lines:
                if self.stopping.is_set():
                    lines.close()       # kills the sampler
                    return
                pairs = (word.split("=") for word in line.split())
                self.add({name: int(number) for name, number in pairs})
        except (vm.GuestError, OSError, KeyError, ValueError) as error:
            self.error = error

    def add(self, seen):
        raise NotImplementedError


def counters(guest):
    """{name: number} of /proc/vmstat."""
    text = guest.sh("cat /proc/vmstat")[1]
    return {name: int(number) for name, number in (line.split() for line in text.splitlines())}


def wait_for_target(guest, mib, seconds, waiting=lambda passed: None):
    """Seconds until the balloon is there, or None; `waiting` is told meanwhile how many passed."""
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        if guest.actual_bytes() == mib * vm.MIB:
            return time.monotonic() - start
        waiting(passed)
        time.sleep(0.02)
    return None


# --- pictures -----------------------------------------------------------------------------------

def draw(script, *words):
    """Have gnuplot draw; a missing picture is an error, for it is what the command promises."""
    done = subprocess.run(["gnuplot", "-c", setup.HERE / script, *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise vm.GuestError(f"gnuplot could not draw the picture:\n{done.stdout}")
