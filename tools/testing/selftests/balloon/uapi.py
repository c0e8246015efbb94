#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compare two versions of the balloon's UAPI header, name by name.

The names are not listed here: macros come from the preprocessor and types
from the compiler's debug information, so what stands in only one of the two
headers is found as well as what differs.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

PREFIX = 'VIRTIO_BALLOON_'
STRUCTURED = {'DW_TAG_structure_type': 'struct', 'DW_TAG_union_type': 'union'}
DIE = re.compile(r'^ *<(\d+)><([0-9a-f]+)>: .*\((DW_TAG_\w+)\)')
ATTRIBUTE = re.compile(r'^ *<[0-9a-f]+> +(DW_AT_\w+) *: (.*)$')


class UapiError(Exception):
    """A header could not be looked at; the text says why."""


def _run(command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)
    if done.returncode:
        raise UapiError(f'{" ".join(command)}: {done.stderr.strip()}')
    return done.stdout


def macros(header):
    """Every macro of the header and of what it includes: name -> text."""
    found = {}
    for line in _run(['gcc', '-E', '-dM', '-x', 'c', header]).splitlines():
        name, _, text = line.removeprefix('#define ').partition(' ')
        if '(' in line.split()[1]:
            # "NAME(argument) text": how the argument is called does not matter
            name = name.partition('(')[0]
            text = 'takes an argument'
        found[name] = text
    return found


def _print_statement(name, text):
    if text == 'takes an argument':
        return f'\tnames("{name}", (const char *[]){name}("<"), ' \
               f'sizeof((const char *[]){name}("<")) / sizeof(char *));\n'
    if PREFIX + 'S_NAMES' in text:
        return f'\tnames("{name}", (const char *[]){name}, ' \
               f'sizeof((const char *[]){name}) / sizeof(char *));\n'
    return f'\tprintf("{name} = %lld, %zu bytes, %s\\n", (long long)({name}), ' \
           f'sizeof({name}), (__typeof__({name}))-1 < 0 ? "signed" : "unsigned");\n'


PROGRAM = '''\
#include <stdio.h>
static void names(const char *macro, const char **name, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf("%s[%zu] = %s\\n", macro, i, name[i]);
}

int main(void)
{
	(void)names;
'''


def values(header, known, directory):
    """What the header's own macros are worth, as the compiler sees it."""
    source = os.path.join(directory, 'values.c')
    with open(source, 'w', encoding='utf-8') as out:
        out.write(PROGRAM)
        for name in sorted(known):
            if name.startswith(PREFIX) and known[name]:
                out.write(_print_statement(name, known[name]))
        out.write('\treturn 0;\n}\n')
    program = os.path.join(directory, 'values')
    _run(['gcc', '-Wall', '-Werror', '-include', header, source, '-o', program])
    return dict(line.split(' = ', 1) for line in _run([program]).splitlines())


def _dies(obj):
    """The debug information: offset -> (tag, attributes, offsets of children)"""
    dies, open_at = {}, {}
    for line in _run(['readelf', '--debug-dump=info', obj]).splitlines():
        start, attribute = DIE.match(line), ATTRIBUTE.match(line)
        if start:
            depth, offset = int(start[1]), int(start[2], 16)
            dies[offset] = (start[3], {}, [])
            open_at[depth] = offset
            if depth:
                dies[open_at[depth - 1]][2].append(offset)
        elif attribute and dies:
            value = re.sub(r'^\(.*?\): ', '', attribute[2]).strip()
            dies[next(reversed(dies))][1][attribute[1]] = value
    return dies


def _type_of(dies, attributes):
    reference = re.search(r'<0x([0-9a-f]+)>', attributes.get('DW_AT_type', ''))
    return dies[int(reference[1], 16)] if reference else ('void', {}, [])


def _type_name(dies, attributes):
    tag, target, _ = _type_of(dies, attributes)
    kind = tag.removeprefix('DW_TAG_').removesuffix('_type')
    if 'DW_AT_name' in target:
        return f'{kind} {target["DW_AT_name"]}'
    if 'DW_AT_type' in target:
        return f'{kind} of {_type_name(dies, target)}'
    return kind


def _members(dies, children, base=0):
    """(name, place and type) of every member, those of unnamed members included."""
    for tag, attributes, _ in (dies[c] for c in children):
        if tag != 'DW_TAG_member':
            continue
        where = base + int(attributes.get('DW_AT_data_member_location', '0'))
        if 'DW_AT_name' in attributes:
            yield attributes['DW_AT_name'], f'at {where}, {_type_name(dies, attributes)}'
        else:
            yield from _members(dies, _type_of(dies, attributes)[2], where)


def layout(header, directory):
    """Sizes, offsets and types of all that the header (or an include) declares."""
    source, obj = (os.path.join(directory, 'layout' + end) for end in ('.c', '.o'))
    with open(source, 'w', encoding='utf-8') as out:
        out.write('static int nothing __attribute__((used));\n')
    _run(['gcc', '-g', '-O0', '-fno-eliminate-unused-debug-types', '-include', header,
          '-c', source, '-o', obj])
    found, dies = {}, _dies(obj)
    for tag, attributes, children in dies.values():
        name = attributes.get('DW_AT_name')
        if tag in STRUCTURED and name and 'DW_AT_byte_size' in attributes:
            aligned = attributes.get('DW_AT_alignment', 'as its members are')
            found[f'{STRUCTURED[tag]} {name}'] = f'{attributes["DW_AT_byte_size"]} bytes, aligned {aligned}'
            found.update((f'{name}.{m}', what) for m, what in _members(dies, children))
        elif tag == 'DW_TAG_enumerator':
            found[name] = attributes.get('DW_AT_const_value')
        elif tag == 'DW_TAG_typedef':
            found[f'typedef {name}'] = _type_name(dies, attributes)
    return found


def _differences(what, ours, theirs):
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            yield f'{what} {name}: only in ours ({ours[name]})'
        elif name not in ours:
            yield f'{what} {name}: missing in ours ({theirs[name]} in the other)'
        elif ours[name] != theirs[name]:
            yield f'{what} {name}: {ours[name]}, but {theirs[name]} in the other'


def compare(ours, theirs):
    """(a sentence about what was compared, the list of differences)"""
    with tempfile.TemporaryDirectory(prefix='balloon-uapi.') as directory:
        names = [macros(h) for h in (ours, theirs)]
        worth = [values(h, n, directory) for h, n in zip((ours, theirs), names)]
        types = [layout(h, directory) for h in (ours, theirs)]
    # The text of our own macros may differ as long as their worth does not
    plain = [{n: '' if n.startswith(PREFIX) else t for n, t in one.items()} for one in names]
    problems = [*_differences('macro', *plain), *_differences('value', *worth),
                *_differences('type', *types)]
    own = [n for n in types[1] if 'virtio_balloon' in n]
    if not worth[1] or not own:
        problems.append(f'{theirs}: no {PREFIX}* constant or no virtio_balloon type in it')
    return f'{len(worth[1])} values and {len(own)} sizes and offsets compared', problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('ours')
    parser.add_argument('theirs')
    arguments = parser.parse_args()
    for path in (arguments.ours, arguments.theirs):
        if not os.path.isfile(path):
            parser.error(f'{path}: no such header')
    summary, problems = compare(arguments.ours, arguments.theirs)
    print('\n'.join([*problems, summary]))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
