# SPDX-License-Identifier: GPL-2.0
"""The architectures that guests can have: what each is built with, and how QEMU plays it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """An architecture, and what of its kernel (the page size) the tests tell apart."""
    name: str
    kbuild: str             # ARCH= of a kernel's build
    cross: str              # CROSS_COMPILE=; empty for this machine's own compiler
    debian: str             # Debian's name for it
    qemu: str
    machine: str
    console: str            # the terminal that the kernel's log goes to
    cpu: str = "max"
    bus: str = "pci"        # of all virtio devices
    append: str = ""        # to the kernel's command line
    target: str = ""        # of make, for the kernel
    image: str = ""         # where that is then, in the build directory
    fragments: tuple = ()   # of its configuration
    packages: tuple = ()    # to build for it and to run it
    slots: tuple = ()       # words of QEMU's command line: where a device can be plugged,
    slot: str = ""          # and the name of that
    without: tuple = ()     # tests that its machine cannot play

    def make_args(self):
        return [f"ARCH={self.kbuild}", f"CROSS_COMPILE={self.cross}"] if self.cross else []


HOST = Arch("x86_64", "x86_64", "", "amd64", "qemu-system-x86_64", "q35", "ttyS0",
            cpu="max,-cx16", target="bzImage", image="arch/x86/boot/bzImage",
            packages=("qemu-system-x86",))


# The balloon of QEMU 7.2 has an iothread for hints, and raises its interrupt there without the lock
# that interrupt controllers insist on, except a PC's: QEMU ends by an assertion.
HINTING = ("hint", "trace-hints")


def arm64(pages):
    """One size of pages; huge ones of 2 MiB go with any, those of half a GiB cannot be had here.

    QEMU's own authentication of pointers is slow; there is a shortcut. To unplug takes it ten
    seconds a time, whatever a page is.
    """
    return Arch(f"arm64-{pages}", "arm64", "aarch64-linux-gnu-", "arm64", "qemu-system-aarch64",
                "virt", "ttyAMA0", cpu="max,pauth-impdef=on", append="default_hugepagesz=2M",
                target="Image", image="arch/arm64/boot/Image",
                fragments=("guest.config", "arm64.config", f"arm64-{pages}.config"),
                slots=("-device", "pcie-root-port,id=slot0"), slot="slot0",
                without=(*HINTING, "unplug", "unplug-no-hints"),
                packages=("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-system-arm"))


# Two of the guests for the features offer hinting; and with a probe on shrinker_free(), that does
# not return early any more where there is no shrinker.
S390X = Arch("s390x", "s390", "s390x-linux-gnu-", "s390x", "qemu-system-s390x",
             "s390-ccw-virtio", "ttyS0", bus="ccw", target="bzImage",
             image="arch/s390/boot/bzImage", fragments=("guest.config", "s390x.config"),
             without=(*HINTING, "unplug", "features", "features-poison"),
             packages=("gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-system-misc"))

FOREIGN = {one.name: one for one in (
    arm64("64k"),
    S390X,
)}
