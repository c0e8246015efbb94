# SPDX-License-Identifier: GPL-2.0
"""KTAP: reading what a test program said, and saying what came of it."""

import re
from dataclasses import dataclass, field

PASS, FAIL, SKIP = "pass", "fail", "skip"

RESULT = re.compile(r"^(not )?ok (\d+)(?: - | )?([^#]*?)\s*(?:#\s*(.*))?$")
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*SKIP\s*(.*))?$", re.I)
SKIPPED = re.compile(r"^SKIP\b\s*(.*)$", re.I)


@dataclass
class Outcome:
    """What came of one test, or of one part of it."""
    state: str = PASS
    reason: str = ""                                # of a skip; of a pass, a word about it
    results: list = field(default_factory=list)     # (ok, name, directive) of the tests inside
    details: list = field(default_factory=list)     # lines that say what went wrong
    seconds: float = 0.0

    def fail(self, *lines):
        self.state = FAIL
        self.details += lines
        return self

    def inverted(self, because, why):
        """Of a program that must fail, with a certain assertion and no other fault."""
        failed = [name for ok, name, _ in self.results if not ok]
        words = [line for line in self.details if re.search(because, line)]
        if failed and len(words) == len(failed):
            return Outcome(reason=why, results=[(True, f"{name} fails: {why}", "")
                                              for name in failed])
        if self.state == PASS:
            return Outcome().fail(f"passes although {why}: so it proves nothing")
        return self.fail(f"it should have failed as {why}, by {because}")

    def add(self, other, label=""):
        """Take in a further part: the worst state is the state of the whole."""
        if FAIL in (self.state, other.state):
            self.state = FAIL
        elif other.state == SKIP and self.state == PASS:
            self.state, self.reason = SKIP, other.reason
        elif not self.reason:
            self.reason = other.reason
        self.results += [(ok, name + label, directive) for ok, name, directive in other.results]
        self.details += other.details
        self.seconds += other.seconds
        return self


def read_program(text, code):
    """The outcome of a test program: its output, and its exit code.

    Nothing is taken for granted: a plan must be there and be kept, and the exit code must agree.
    """
    outcome, plan = Outcome(), None
    for line in text.splitlines():
        planned, result = PLAN.match(line), RESULT.match(line)
        if planned:
            plan = int(planned[1])
            if planned[2] is not None:
                outcome.state, outcome.reason = SKIP, planned[2]
        elif result:
            outcome.results.append((not result[1], result[3], result[4] or ""))
        elif line.startswith("#") and not re.match(r"# +(RUN|OK|Starting|PASSED|Totals)\b", line):
            outcome.details.append(line.lstrip("# "))
    return _judge(outcome, plan, code)


def _judge(outcome, plan, code):
    skips = [SKIPPED.match(directive) for _, _, directive in outcome.results]
    if plan is None:
        return outcome.fail("the program did not say how many tests it has")
    if plan != len(outcome.results):
        return outcome.fail(f"{plan} tests were planned, {len(outcome.results)} reported")
    if not all(ok for ok, _, _ in outcome.results):
        return outcome.fail()
    if outcome.state == SKIP:
        return outcome
    if code:
        return outcome.fail(f"the program's exit code is {code}")
    if not plan:
        return outcome.fail("the program has no such test")
    for skip in filter(None, skips):
        outcome.state, outcome.reason = SKIP, skip[1]
    return outcome


def _directive(outcome):
    if outcome.state == SKIP:
        return f" # SKIP {outcome.reason}"
    return f" # {outcome.seconds:.1f} s" + (f", {outcome.reason}" if outcome.reason else "")


def lines(number, name, outcome):
    """One test's result, with the tests inside it before it."""
    if outcome.results:
        yield "  KTAP version 1"
        yield f"  1..{len(outcome.results)}"
    for count, (ok, inner, directive) in enumerate(outcome.results, 1):
        yield f'  {"ok" if ok else "not ok"} {count} {inner}' + (f" # {directive}" if directive else "")
    if outcome.state == FAIL:
        yield from (f"  # {line}" for line in outcome.details)
    yield f'{"not ok" if outcome.state == FAIL else "ok"} {number} {name}' + _directive(outcome)
