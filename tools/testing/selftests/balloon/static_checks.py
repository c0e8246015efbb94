# SPDX-License-Identifier: GPL-2.0
"""The checks that need no guest. Each returns a sentence, or raises Failed or Skipped."""

import os
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import setup
import uapi

HEADER = "include/uapi/linux/virtio_balloon.h"
DRIVER = "drivers/virtio/virtio_balloon.c"
TRACE = "include/trace/events/virtio_balloon.h"
ORIGINALITY = setup.ROOT.parent / "shared/tools/originality"

# checkpatch's types that a file is excused from, and why.
EXCUSED = {
    # The prefix is a string literal by the macro's definition: evaluating it has no side effect.
    HEADER: ["MACRO_ARG_REUSE"],
    # The kernel's page flag functions; what makes their names is a macro, so they are found nowhere.
    DRIVER: ["CAMELCASE"],
    # Programs of the host, which knows no kernel types.
    **{f"tools/testing/selftests/balloon/host/{name}": ["PREFER_KERNEL_TYPES"]
       for name in ("insn_count.c", "qemu_plugin.h")},
    # The form that the tracing macros ask for is no form that checkpatch knows.
    TRACE: ["PARENTHESIS_ALIGNMENT", "OPEN_ENDED_LINE"],
}


class Failed(Exception):
    """What is wrong, a line each."""

    def __init__(self, lines):
        super().__init__("\n".join(lines))
        self.lines = list(lines)


class Skipped(Exception):
    """Why a check cannot be made here."""


def project_files():
    """All files of the project, as paths from its top; in a tree without git, what would be."""
    listed = setup.output("git", "-C", str(setup.ROOT), "ls-files", "-co", "--exclude-standard")
    names = listed.splitlines() or [str(path.relative_to(setup.ROOT))
                                    for top in ("drivers", "include", "tools", "Documentation", ".ci")
                                    for path in (setup.ROOT / top).rglob("*")]
    return sorted(name for name in set(names) if (setup.ROOT / name).is_file())


def files_like(*endings):
    return [name for name in project_files() if name.endswith(endings)]


def shell_scripts():
    def starts_as_one(name):
        with open(setup.ROOT / name, "rb") as file:
            return re.match(rb"#! ?/(usr/)?bin/(env )?(ba|da)?sh\b", file.readline()) is not None

    return [name for name in project_files() if name.endswith(".sh") or starts_as_one(name)]


def kernel_source(*parts):
    """A place in the kernel source."""
    found, why = setup.source()
    if found is None:
        raise Skipped(f"no kernel source: {why}")
    return found.joinpath(*parts)


def needed(program, package):
    if not shutil.which(program):
        raise Skipped(f"{program} is not there (package {package})")


def run(command, **kwargs):
    """(exit code, everything it said)"""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=False,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                          **{"timeout": 300, "cwd": setup.ROOT, **kwargs})
    return done.returncode, done.stdout


def check_uapi():
    theirs = kernel_source(HEADER)
    try:
        summary, problems = uapi.compare(str(setup.ROOT / HEADER), str(theirs))
    except uapi.UapiError as error:
        raise Failed(str(error).splitlines()) from None
    if problems:
        raise Failed(problems)
    return summary


def check_sparse():
    """Compiles the module with all of the kernel's own warnings, and sparse's, on."""
    needed("sparse", "sparse")
    with tempfile.TemporaryDirectory(prefix="balloon-sparse.") as room:
        setup.stage(setup.module_files(setup.ROOT / DRIVER), Path(room), "")
        code, said = run(["make", "-C", setup.kernel().headers, f"M={room}", "W=1", "C=2",
                          "CF=-D__CHECK_ENDIAN__", "modules"])
    bad = [line.replace(room + "/", "") for line in said.splitlines()
           if re.search(r"(warning|error):", line)]
    if code or bad:
        raise Failed(bad or said.splitlines()[-20:])
    if not re.search(r"^ +CHECK .*virtio_balloon\.c", said, re.M):
        raise Failed(["the build did not run sparse:", *said.splitlines()])
    return "sparse with endian checks and W=1: not a word"


def checkpatch(names, ignore=()):
    """What checkpatch has to say. It keeps a list of the kernel's names where it is run."""
    room = setup.CACHE / "checkpatch"
    room.mkdir(parents=True, exist_ok=True)
    command = ["perl", kernel_source("scripts/checkpatch.pl"), "--strict", "--no-tree",
               f"--root={kernel_source()}", "--no-summary", "--quiet", "--show-types",
               "--color=never", *[f"--ignore={kind}" for kind in ignore], "-f"]
    said = run([*command, *[setup.ROOT / name for name in names]], cwd=room,
               env=dict(os.environ, GIT_DIR=str(room / "none")))[1]
    return said.replace(f"{setup.ROOT}/", "").strip()


def check_checkpatch():
    needed("perl", "perl")
    names = sorted({*files_like(".c", ".h", ".py", ".sh"), *shell_scripts()})
    said = [checkpatch([name for name in names if name not in EXCUSED])]
    said += [checkpatch([name], EXCUSED[name]) for name in sorted(EXCUSED.keys() & set(names))]
    lines = "\n".join(filter(None, said)).splitlines()
    if lines:
        raise Failed(lines)
    return f"{len(names)} files"


def check_originality():
    if not ORIGINALITY.exists():
        raise Skipped("its checker is no part of this project, and is not there")
    verdicts = []
    for name in (DRIVER, HEADER):
        code, said = run([ORIGINALITY, setup.ROOT / name, kernel_source(name)])
        verdict = (said.strip().splitlines() or ["it said nothing"])[-1]
        if code or not verdict.startswith("ok"):
            raise Failed([name, *said.splitlines()])
        verdicts.append(f"{Path(name).name} {verdict}")
    return "; ".join(verdicts)


def check_shellcheck():
    needed("shellcheck", "shellcheck")
    names = shell_scripts()
    if not names:
        raise Skipped("there are no shell scripts")
    code, said = run(["shellcheck", *names])
    if code:
        raise Failed(said.splitlines())
    return f"{len(names)} scripts"


def check_python():
    """Compiles, and leaves no __pycache__ about."""
    names, bad = files_like(".py"), []
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                compile((setup.ROOT / name).read_bytes(), name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, Warning) as error:
                bad.append(f"{name}: {error}")
    if bad:
        raise Failed(bad)
    return f"{len(names)} files"
