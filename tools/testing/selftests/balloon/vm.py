# SPDX-License-Identifier: GPL-2.0
"""A guest under QEMU: boots it, runs commands in it, moves its balloon, and always ends it.

    with Guest("out/try", mem_mib=1024) as guest:
        guest.set_target_bytes(512 << 20)
        code, text = guest.sh("grep balloon_ /proc/vmstat")

Nothing is concluded from silence: a command has run when its exit code came back over the guest's
own virtio-serial port, and a guest that dies instead raises GuestDied.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import setup

MIB = 1 << 20
SHELLS = 3                  # vb.sh0 ... vb.sh2
MARK = b"\x1e"              # begins a record of the shell protocol (guest/init.c)
KILL = b"\x03"

BOOT_SECONDS = 120          # 4 s on an idle machine
BOOTS = 3                   # QEMU's multi-threaded TCG crashes about one boot in thirty
QMP_SECONDS = 60            # QEMU's main loop also serves the balloon, and may be busy
LOAD_SECONDS = 60
UNPLUG_SECONDS = 60
STOP_SECONDS = 10

BALLOON_ID = "balloon0"
BALLOON_QOM = f"/machine/peripheral/{BALLOON_ID}"

# Lines of a kernel log that no test may leave behind.
BAD_LINES = re.compile("|".join([
    r"\bWARNING:", r"\bBUG\b", r"\bOops\b", r"general protection fault", r"Kernel panic",
    r"Call Trace:", r"unable to handle", r"kernel NULL pointer", r"double fault",
    r"blocked for more than", r"soft lockup", r"hard LOCKUP", r"self-detected stall",
    r"detected stalls", r"rcu.*stall", r"workqueue lockup", r"possible circular locking",
    r"possible recursive locking", r"inconsistent lock state", r"suspicious RCU usage",
    r"lockdep", r"KASAN", r"UBSAN", r"KCSAN", r"KFENCE", r"kmemleak: [1-9]", r"refcount_t",
    r"bad page", r"Bad page", r"Bad rss-counter", r"list_(add|del) corruption", r"slab.*corrupt",
    r"pagealloc: ", r"invalid opcode", r"invoked oom-killer", r"Out of memory: Killed",
    r"segfault at", r"traps: ", r"Unknown symbol", r"disagrees about version",
]))

FIRST_LINE = re.compile(r"(?m)^(?=\[ *[0-9.]+\] Linux version )")


class GuestError(Exception):
    """The guest, or the QEMU it runs in, did not do what it was asked to."""


class GuestDied(GuestError):
    """QEMU ended."""


class GuestTimeout(GuestError):
    """Something took longer than its bound."""


class QmpError(GuestError):
    """QEMU refused a command."""


def connect(path):
    """Connect to a unix socket, by way of its directory: a path there may be longer than 107."""
    path = Path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock


class Qmp:
    """QEMU's control socket. A thread reads it, so that events are seen when they happen."""

    def __init__(self, path):
        self.sock = connect(path)
        self.news = threading.Condition()
        self.log = []           # (host time, event), protected by news
        self.answers = {}       # by id, protected by news
        self.closed = False     # protected by news
        self.last_id = 0        # protected by news
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        try:
            self("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def _read(self):
        with contextlib.suppress(OSError), self.sock.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                self._take(json.loads(line))
        with self.news:
            self.closed = True
            self.news.notify_all()

    def _take(self, message):
        with self.news:
            if "event" in message:
                self.log.append((time.monotonic(), message))
            elif "id" in message:
                self.answers[message["id"]] = message
            self.news.notify_all()

    def __call__(self, command, /, timeout=QMP_SECONDS, **arguments):
        with self.news:
            self.last_id += 1
            number = self.last_id
            request = {"execute": command, "arguments": arguments, "id": number}
            try:
                self.sock.sendall(json.dumps(request).encode() + b"\n")
            except OSError as error:
                raise GuestDied(f"QEMU is gone: {command} could not be sent ({error})") from None
            done = self.news.wait_for(lambda: number in self.answers or self.closed, timeout)
            answer = self.answers.pop(number, None)
        if answer is None:
            if done:
                raise GuestDied(f"QEMU ended before it answered {command}")
            raise GuestTimeout(f"QEMU did not answer {command} within {timeout} s")
        if "error" in answer:
            raise QmpError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def events(self, name):
        with self.news:
            return [event for _, event in self.log if event["event"] == name]

    def wait_event(self, name, timeout, seen):
        """The first event of this name after `seen` of them; None when it does not come."""
        with self.news:     # re-entrant: events() takes it again
            self.news.wait_for(lambda: self.closed or len(self.events(name)) > seen, timeout)
            return next(iter(self.events(name)[seen:]), None)

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.sock.close()


class Port:
    """The host's end of one virtio-serial port, read line by line with a bound."""

    def __init__(self, guest, path):
        self.guest = guest
        self.name = Path(path).stem
        self.sock = connect(path)
        self.lock = threading.Lock()
        self.unread = b""

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            raise self.guest.died(f"while {self.name} was written to") from None

    def _receive(self, deadline, what):
        left = deadline - time.monotonic()
        if left <= 0:
            raise GuestTimeout(f"{what}: nothing more came in time")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            raise GuestTimeout(f"{what}: nothing more came in time") from None
        except OSError:
            data = b""
        if not data:
            raise self.guest.died(what)
        self.unread += data

    def line(self, deadline, what):
        """(text, None), or (None, record) for what the shell protocol itself says."""
        while b"\n" not in self.unread:
            self._receive(deadline, what)
        raw, self.unread = self.unread.split(b"\n", 1)
        text, mark, record = raw.partition(MARK)
        if mark and text:       # output that did not end in a newline
            self.unread = MARK + record + b"\n" + self.unread
        elif mark:
            return None, record.decode(errors="replace")
        return text.decode(errors="replace").rstrip("\r"), None

    def wait_record(self, record, deadline, what):
        while self.line(deadline, what)[1] != record:
            pass

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class HostRequests:
    """Answers what programs in the guest ask of the host: one line up, one line down."""

    def __init__(self, guest, path):
        self.guest = guest
        self.sock = connect(path)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with contextlib.suppress(OSError), self.sock.makefile("r", errors="replace") as lines:
            for line in lines:
                self.sock.sendall(self.answer(line.split()).encode() + b"\n")

    def answer(self, words):
        handler = getattr(self, "do_" + words[0].replace("-", "_"), None) if words else None
        if handler is None:
            return f'error unknown request "{" ".join(words)}"'
        try:
            found = handler(*words[1:])
        except (GuestError, TypeError, ValueError, OSError) as error:
            return "error " + " ".join(str(error).split())
        return "ok" if found is None else f"ok {found}"

    def do_target_bytes(self, count):
        self.guest.set_target_bytes(int(count))

    def do_actual(self):
        return self.guest.actual_bytes()

    def do_rss(self):
        return self.guest.rss_kib()

    def do_mem(self):
        return self.guest.mem_mib * MIB

    def do_stats(self):
        return " ".join(f"{name}={value}" for name, value in self.guest.stats().items())

    def do_stats_interval(self, seconds):
        self.guest.stats_interval(int(seconds))

    def do_migrate_start(self, mib_per_second):
        self.guest.migrate_start(int(mib_per_second))

    def do_migrate_status(self):
        return self.guest.migrate_status()

    def do_cont(self):
        self.guest.qmp("cont")

    def do_events(self, name):
        return len(self.guest.events(name))

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.sock.close()


class Guest:
    """One QEMU with one guest. QEMU runs in `outdir`: relative paths in `extra` end up there."""

    def __init__(self, outdir, mem_mib=1024, cpus=2, append="", balloon="deflate-on-oom=on",
                 extra=(), machine=None, load=True, module=None, params="", modules=(), drives=(),
                 programs=(), qemu=None, cpu=None, accel="tcg,thread=multi", tty=None, files=None,
                 bus=None, kernel=None):
        self.outdir = Path(outdir).resolve()
        self.mem_mib, self.cpus, self.append, self.balloon = mem_mib, cpus, append, balloon
        self.kernel = kernel or setup.kernel()
        self.arch = self.kernel.arch
        self.machine, self.cpu = machine or self.arch.machine, cpu or self.arch.cpu
        self.extra, self.accel = list(extra), accel
        self.load_module, self.params, self.tty = load, params, tty
        self.module = module
        self.bus = bus or self.arch.bus     # of all virtio devices: "pci", "mmio" or "ccw"
        self.modules = list(modules) + (["virtio_blk"] if drives else [])
        self.drives = list(drives)
        self.programs = programs
        self.files = dict(files or {})
        self.qemu = find_qemu(qemu or self.arch.qemu)
        self.boots = 0          # how many it took
        self.stopped = False    # told to end, perhaps by another thread while it boots
        self.process = self.control = self.requests = None
        self.ports = []

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # --- starting and stopping

    def start(self):
        """Boot, load the modules; a boot that dies before its first shell answers is repeated."""
        if self.process and self.process.poll() is None:
            return self
        self.outdir.mkdir(parents=True, exist_ok=True)
        self._write_initramfs()
        (self.outdir / "console.log").write_bytes(b"")
        try:
            self._boot_patiently()
            self._load_all(self.load_module)
        except BaseException:
            self.stop()
            raise
        return self

    def _boot_patiently(self):
        """Boot, behind what the kernel log has already."""
        before = self.console()
        for self.boots in range(1, BOOTS + 1):
            try:
                self._boot()
                return
            except (GuestDied, GuestTimeout) as error:
                self._end_qemu()
                log = self.console().removeprefix(before)
                (self.outdir / f"console-dead-boot-{self.boots}.log").write_text(log)
                if self.stopped or self._refused_by_qemu(log) or self.boots == BOOTS:
                    raise
                (self.outdir / "console.log").write_text(before)
                setup.say(f"note: boot {self.boots} ended before its first command, "
                          f"trying again ({str(error).splitlines()[0]})")

    def _refused_by_qemu(self, log):
        """QEMU did not like its command line or its files: no use in trying again."""
        return self.process.returncode == 1 and not log.strip()

    def _boot(self):
        self._clear_sockets()
        command = self.command()
        (self.outdir / "qemu.cmd").write_text(shlex.join(command) + "\n")
        # setpriv: if this process is killed, the kernel kills QEMU too. A session of its own:
        # Ctrl-C on the terminal is for us, who end QEMU in order.
        with open(self.outdir / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command],
                                            cwd=self.outdir, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        self._connect()
        self._wait_ready()

    def _connect(self):
        deadline = time.monotonic() + QMP_SECONDS
        while not self._try_to_connect():
            if self.process.poll() is not None:
                raise self.died("at once")
            if time.monotonic() > deadline:
                raise GuestTimeout("QEMU did not open its control socket")
            time.sleep(0.02)

    def _try_to_connect(self):
        """Sockets come one by one, and QEMU may yet end for what follows on its command line."""
        try:
            self.control = Qmp(self.outdir / "qmp.sock")
            for number in range(SHELLS):
                self.ports.append(Port(self, self.outdir / f"sh{number}.sock"))
            self.requests = HostRequests(self, self.outdir / "host.sock")
        except (OSError, GuestDied):
            self._disconnect()
        return self.requests is not None

    def _disconnect(self):
        for part in [*self.ports, self.requests, self.control]:
            if part:
                part.close()
        self.ports, self.requests, self.control = [], None, None

    def _wait_ready(self):
        deadline = time.monotonic() + BOOT_SECONDS
        for port in self.ports:
            port.wait_record("READY", deadline, "booting")

    def _load_all(self, balloon):
        for path in self._stock_modules():
            self._insmod(path.name, "")
        if balloon:
            self.load()

    def _insmod(self, name, params):
        code, text = self.sh(f"insmod /mod/{name} {params}", timeout=LOAD_SECONDS)
        if code:
            raise GuestError(f"loading {name} failed: {text}")

    def load(self, params=None):
        """Load the balloon module."""
        self._insmod("virtio_balloon.ko", self.params if params is None else params)

    def stop(self):
        """End QEMU and everything that belonged to it. Logs stay."""
        self.stopped = True
        self._end_qemu()
        (self.outdir / "initrd.gz").unlink(missing_ok=True)

    def _end_qemu(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait(STOP_SECONDS)
        self._disconnect()
        self._clear_sockets()

    def _clear_sockets(self):
        for path in self.outdir.glob("*.sock"):
            path.unlink(missing_ok=True)

    def died(self, when):
        """The error that says how QEMU ended and what was last heard of the guest."""
        code = None
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(2)
        words = (self.outdir / "qemu.log").read_text(errors="replace").splitlines()[-4:]
        lines = [line for line in words + self.console().splitlines()[-12:] if line.strip()]
        return GuestDied(f"the guest died ({when}; QEMU's exit code {code})"
                         + "".join("\n  | " + line for line in lines))

    # --- what QEMU is given

    def _stock_modules(self):
        found = [path for name in self.modules for path in setup.kernel_module(name, self.kernel)]
        return list(dict.fromkeys(found))

    def _bus_modules(self):
        return setup.kernel_module("virtio_mmio", self.kernel) if self.bus == "mmio" else []

    def _device(self, name):
        """QEMU's name of a virtio device on the guest's bus."""
        return f"virtio-{name}-" + ("device" if self.bus == "mmio" else self.bus)

    def virtio_path(self):
        """Where QEMU has the balloon's virtio device: behind its PCI or CCW device, if any."""
        return BALLOON_QOM + ("" if self.bus == "mmio" else "/virtio-backend")

    def _write_initramfs(self):
        files = {"init": setup.program("init", arch=self.arch)["init"],
                 "bin/busybox": setup.busybox(self.arch),
                 "dev/.keep": "", "etc/profile": "PS1='guest# '\n"}
        files |= {f"mod/{path.name}": path for path in self._stock_modules() + self._bus_modules()}
        if self.balloon is not None or self.load_module or self.module:
            module = self.module or setup.module(kdir=self.kernel.headers, arch=self.arch)
            files["mod/virtio_balloon.ko"] = Path(module)
        files |= {f"bin/{name}": Path(path) for name, path in self._programs().items()}
        setup.initramfs(files | self.files, self.outdir / "initrd.gz")

    def _programs(self):
        if isinstance(self.programs, dict):
            return self.programs
        paths = [item for item in self.programs if "/" in str(item)]
        names = [item for item in self.programs if "/" not in str(item)]
        return {Path(path).name: path for path in paths} | setup.program(names, arch=self.arch)

    def command(self):
        tty = f"vb.tty={self.tty}" if self.tty else ""
        bus = "".join(f"vb.insmod={path.stem}" for path in self._bus_modules())
        append = (f"console={self.arch.console} panic=-1 init_on_alloc=0 "
                  f"vb.ports={SHELLS} {bus} {tty} {self.arch.append} {self.append}")
        return [self.qemu, "-machine", self.machine, "-accel", self.accel, "-cpu", self.cpu,
                "-smp", str(self.cpus), "-m", f"{self.mem_mib}M", "-nodefaults", "-no-user-config",
                "-display", "none", "-monitor", "none", "-no-reboot",
                "-kernel", str(self.kernel.image), "-initrd", "initrd.gz",
                "-append", " ".join(append.split()), *self._console_args(),
                *socket_args("qmp"), *self._serial_args(), *self._balloon_args(),
                *self._drive_args(), *self.arch.slots, *map(str, self.extra)]

    def _console_args(self):
        """The terminal of the kernel's log. A machine with a CCW bus has no serial port."""
        port = ["-device", "sclpconsole,chardev=console"] if self.arch.bus == "ccw" else \
            ["-serial", "chardev:console"]
        return ["-chardev", "file,id=console,path=console.log,append=on", *port]

    def _serial_args(self):
        args = ["-device", self._device("serial")]
        for name in [f"sh{number}" for number in range(SHELLS)] + ["host"]:
            args += ["-chardev", f"socket,id={name},path={name}.sock,server=on,wait=off",
                     "-device", f"virtserialport,chardev={name},name=vb.{name}"]
        return args

    def _balloon_args(self):
        if self.balloon is None:
            return []
        args = []
        device = self._device("balloon") + f",id={BALLOON_ID}," + self.balloon
        if "free-page-hint=on" in device and "iothread=" not in device:     # QEMU insists on one
            args = ["-object", "iothread,id=hinting"]
            device += ",iothread=hinting"
        return args + ["-device", device.rstrip(",")]

    def _drive_args(self):
        args = []
        for number, drive in enumerate(self.drives):
            path, options = drive if isinstance(drive, tuple) else (drive, "format=raw")
            path = str(Path(path).resolve()).replace(",", ",,")
            args += ["-drive", f"if=none,id=drive{number},file={path},{options}",
                     "-device", self._device("blk") + f",drive=drive{number}"]
        return args

    # --- talking to it

    def lines(self, cmd, timeout=60, port=0):
        """Run a shell command and yield its lines as they come; the exit code is returned.

        If the caller stops early, or the time is over, the command is killed.
        """
        channel = self.ports[port]
        what = f"`{cmd.strip().splitlines()[0][:60]}`"
        with channel.lock:
            channel.send(cmd.encode() + b"\0")
            deadline = time.monotonic() + timeout
            running = True
            try:
                while True:
                    text, record = channel.line(deadline, what)
                    if record is None:
                        yield text
                    else:
                        running = False
                        return self._exit_code(record, what)
            except GuestDied:
                running = False
                raise
            finally:
                if running:
                    self._kill_command(channel, what)

    def _exit_code(self, record, what):
        if not record.startswith("RC="):
            raise GuestDied(f"{what}: the guest rebooted in the middle ({record})")
        return int(record[3:])

    def _kill_command(self, channel, what):
        channel.send(KILL)
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            _, record = channel.line(deadline, f"killing {what}")
            if record and record.startswith("RC="):
                return

    def sh(self, cmd, timeout=60, port=0):
        """(exit code, output) of a shell command in the guest."""
        found, run = [], self.lines(cmd, timeout, port)
        while True:
            try:
                found.append(next(run))
            except StopIteration as end:
                return end.value, "\n".join(found)

    def sh_through_power_off(self, cmd, resume, timeout=60):
        """(exit code, output) of a command in whose middle the guest hibernates to its disk.

        QEMU ends then. A new one is started, whose guest runs `resume`, which does not return: the
        old guest takes its place, and the command goes on.
        """
        found = []
        with self.ports[0].lock:
            self.ports[0].send(cmd.encode() + b"\0")
            found += self._lines_until_power_off(time.monotonic() + timeout)
        self._end_qemu()
        self._boot_patiently()
        self.ports[1].send(resume.encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            text, record = self.ports[0].line(deadline, "waking from the disk")
            if record is not None:
                return self._exit_code(record, "waking from the disk"), "\n".join(found)
            found.append(text)

    def _lines_until_power_off(self, deadline):
        found = []
        try:
            while True:
                text, record = self.ports[0].line(deadline, "hibernating")
                if record is not None:
                    raise GuestError("the guest did not hibernate: " + " | ".join(found))
                found.append(text)
        except GuestDied:
            if self.process.poll() != 0:
                raise
            return found

    def qmp(self, command, /, **arguments):
        return self.control(command, **arguments)

    def events(self, name):
        return self.control.events(name)

    def wait_event(self, name, timeout, seen=0):
        """Event number `seen` (from 0) of this name, as soon as it is there."""
        event = self.control.wait_event(name, timeout, seen)
        if event is None:
            raise GuestTimeout(f"no event {name} within {timeout} s")
        return event

    def set_target_bytes(self, count):
        """How much memory the guest is to keep."""
        self.qmp("balloon", value=count)

    def actual_bytes(self):
        """How much memory the guest says it has kept."""
        return self.qmp("query-balloon")["actual"]

    def rss_kib(self):
        """What the host has given to QEMU, the guest's memory included."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+([0-9]+) kB", status)
        if not found:           # a process that has ended has no memory
            raise self.died("while its memory was looked at")
        return int(found[1])

    def cpu_seconds(self):
        """CPU time of QEMU since its start, in user mode and in the host's kernel."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stats(self):
        """The guest's statistics as QEMU last got them, and when: {name: number}."""
        found = self.qmp("qom-get", path=BALLOON_QOM, property="guest-stats")
        return {"last-update": found["last-update"], **found["stats"]}

    def stats_interval(self, seconds):
        self.qmp("qom-set", path=BALLOON_QOM, property="guest-stats-polling-interval",
                 value=seconds)

    def plug(self, **properties):
        """Hot-plug the balloon device; an iothread "hinting" must be there for hinting."""
        if properties.get("free-page-hint"):
            properties["iothread"] = "hinting"
        if self.arch.slot:
            properties["bus"] = self.arch.slot
        self.qmp("device_add", driver=self._device("balloon"), id=BALLOON_ID, **properties)

    def unplug(self):
        """Ask the guest to let go of the balloon device, and wait until it has."""
        seen = len(self.events("DEVICE_DELETED"))
        self.qmp("device_del", id=BALLOON_ID)
        while self.wait_event("DEVICE_DELETED", UNPLUG_SECONDS, seen)["data"].get("device") \
                != BALLOON_ID:
            seen += 1

    def migrate_start(self, mib_per_second):
        """A live migration to nowhere. Its end leaves the guest stopped: `cont` resumes it."""
        self.qmp("migrate-set-parameters", **{"max-bandwidth": mib_per_second * MIB})
        self.qmp("migrate", uri="exec:cat >/dev/null")

    def migrate_status(self):
        """STATUS and the pages sent in full, as "completed ram.normal=N"."""
        found = self.qmp("query-migrate")
        return f"{found.get('status', 'none')} ram.normal={found.get('ram', {}).get('normal', 0)}"

    def reset(self, load=None):
        """Reboot the guest inside the same QEMU; its target is kept by the device."""
        boots = len(FIRST_LINE.findall(self.console()))
        self.qmp("set-action", reboot="reset")      # a boot that dies leads to the next, too
        self.qmp("system_reset")
        self._wait_ready()
        self.qmp("set-action", reboot="shutdown")
        dead = len(FIRST_LINE.findall(self.console())) - boots - 1
        if dead > 0:
            setup.say(f"note: {dead} boot(s) ended before their first command, the next one lived")
        self._load_all(self.load_module if load is None else load)

    def console(self):
        with contextlib.suppress(OSError):
            return (self.outdir / "console.log").read_text(errors="replace")
        return ""

    def living_boots(self):
        """The kernel log without boots that ended before a shell answered, as reset() may see."""
        boots = FIRST_LINE.split(self.console())
        return "".join(one for one in boots[:-1] if "READY" in one) + boots[-1]

    def problems(self, allow=()):
        """Lines of the kernel log that should not be there, but for those that match `allow`."""
        fine = [re.compile(pattern) for pattern in allow]
        return [line for line in self.living_boots().splitlines()
                if BAD_LINES.search(line) and not any(one.search(line) for one in fine)]


def socket_args(name):
    return ["-qmp", f"unix:{name}.sock,server=on,wait=off"]


def find_qemu(name):
    path = shutil.which(name)
    if not path:
        raise setup.SetupError(f'QEMU="{name}" is no program that can be run')
    return str(Path(path).absolute())


def add_qemu(parser):
    """Give a command the option of another QEMU."""
    parser.add_argument("--qemu", default=os.environ.get("QEMU") or "", metavar="PROGRAM",
                        help="another qemu-system-* (QEMU=)")


def prepare(what, qemu, more=()):
    """Install what a command with guests needs, but no QEMU if one is named; None, or its path."""
    found = find_qemu(qemu) if qemu else None
    setup.ensure(what, skip=["qemu-system-x86"] if qemu else [], more=more)
    return found
