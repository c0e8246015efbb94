# SPDX-License-Identifier: GPL-2.0
"""`make mutants`: the driver broken on purpose, a little and in many ways, and what notices.

Each patch in mutants/ breaks the driver, says how, and names the KUnit tests that must notice. Those
are run against the driver with that patch: a mutant is caught if one of them fails, or if the kernel
warns. Before that all of them are run against the driver as it is, and must pass.

Status 0: all mutants were caught. 1: some were not. 2: it could not be run.
"""

import os
import re
import subprocess
import time

import kunit
import setup
from setup import SetupError

OUT = setup.OUT / "mutants"
PATCHES = setup.HERE / "mutants"
SECONDS = 100               # some mutants make the kernel hang
TESTS = re.compile(r"^Tests: (\S+)$", re.M)
FAILED_CASE = re.compile(r"^ {4}not ok \d+ (\w+)", re.M)
FAILED_PART = re.compile(r"^ {8}not ok \d+ (.*?)(?: #.*)?$", re.M)


class Mutant:
    """A patch: its name, how it breaks the driver, and which tests notice."""

    def __init__(self, patch):
        text = patch.read_text()
        found = TESTS.search(text)
        if not found:
            raise SetupError(f'{patch.name} does not say which tests notice ("Tests: PATTERN")')
        self.name, self.patch, self.tests = patch.stem, patch, found[1]
        self.about = " ".join(text[text.index("\n") + 1:found.start()].split())

    def driver(self):
        """The broken driver's source."""
        broken = OUT / f"{self.name}.c"
        done = subprocess.run(["patch", "--silent", "--force", "--no-backup-if-mismatch",
                               "--reject-file=-", "-o", broken, setup.DRIVER, self.patch],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"{self.patch.name} does not fit the driver any more: make it anew\n"
                             + done.stdout)
        return broken


def choose(names):
    found = {patch.stem: Mutant(patch) for patch in sorted(PATCHES.glob("*.patch"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SetupError(f'there is no mutant "{unknown[0]}"; there are: {" ".join(found)}')
    return [found[name] for name in names or found]


def noticed(log, content):
    """What noticed: the tests that failed, then the kernel's own words; nothing if none did."""
    failed = FAILED_CASE.findall(log) or FAILED_PART.findall(log)
    warned = list(dict.fromkeys(line.strip() for line in kunit.splats(log)))
    if not content and not failed and not warned:
        return ["the kernel did not come to an end"]
    return failed + warned


def tell(text):
    print(text, flush=True)


def shorten(words):
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


def try_mutant(number, mutant):
    begun = time.monotonic()
    log, content = kunit.run(mutant.driver(), mutant.tests, SECONDS)
    (OUT / f"{mutant.name}.log").write_text(log)
    words = noticed(log, content)
    if not words:
        tell(f"  # {mutant.about}\n  # {mutant.tests} pass all the same")
    tell(f'{"ok" if words else "not ok"} {number} {mutant.name} # {time.monotonic() - begun:.0f} s, '
        + (f"caught by {shorten(words)}" if words else "survives"))
    return bool(words)


def whole_driver_passes():
    log, content = kunit.run(setup.DRIVER, kunit.ALL)
    (OUT / "unbroken.log").write_text(log)
    words = noticed(log, content)
    if words:
        raise SetupError(f"the tests fail without any mutant: {shorten(words)}; see `make kunit`")


def parse_arguments():
    parser = setup.parser("mutants.py", __doc__)
    parser.add_argument("names", nargs="*", default=(os.environ.get("TESTS") or "").split(),
                        help="only these (TESTS=)")
    parser.add_argument("--list", action="store_true", default=setup.flag("LIST"),
                        help="list them and run none (LIST=1)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    chosen = choose(args.names)
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name:24} {mutant.about}")
        return 0
    setup.ensure("mutants")
    setup.own(OUT)
    whole_driver_passes()
    tell(f"KTAP version 1\n1..{len(chosen)}")
    try:
        caught = sum(try_mutant(number, mutant) for number, mutant in enumerate(chosen, 1))
    finally:        # nobody is to take a mutant in the cache for the driver
        kunit.overlay(kunit.tree(), setup.DRIVER)
    tell(f"{caught} of {len(chosen)} mutants caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    setup.guarded(main)
