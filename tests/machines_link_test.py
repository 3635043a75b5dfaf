#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two state machines do no I/O: proved by what is linked, not by includes.

    machines_link_test.py BUILD        (the build folder, with the static libraries)

Every function of the machines' libraries is a root. From there the calls are followed through the objects of wflow's other
libraries (relocations, direct calls, vtables), also within a unity build. Each symbol that is reached and not defined in them
must match PERMITTED: a socket, file, clock, process or thread does not, and the chain of calls to it is printed."""

import re
import subprocess
import sys
from bisect import bisect_right
from collections import deque
from pathlib import Path

ROOTS = ("workers/libwflow_agent_machine.a", "engine/libwflow_coordinator_machine.a", "engine/libwflow_allocations.a",
         "engine/libwflow_scheduler.a")
OTHERS = ("specs/libwflow_specs.a", "base/libwflow_base.a", "engine/wire/libwflow_wire.a", "converters/libwflow_convert_config.a",
          "trainer/libwflow_train_config.a", "propose/libwflow_propose_config.a")

# By mangled name in C, demangled in C++. No entry may name anything that can block, or that differs from call to call.
PERMITTED = re.compile("|".join((
    # memory, text and numbers of the C library
    r"mem(cpy|move|set|cmp|chr|rchr)", r"str(len|cmp|ncmp|chr|tod|tof|tol|toul|toull|toll|signal|error|error_r)", r"__isoc23_\w+", r"is(graph|space|digit|alpha|alnum|print|upper|lower)",
    r"to(upper|lower)", r"v?snprintf", r"__v?snprintf_chk", r"localeconv", r"(ldexp|frexp|log|log2|log10|exp|exp2|pow|sqrt|cbrt|floor|ceil|round|trunc|fmod|llround|lround|nearbyint|sin|cos|tan|atan2|erf)[fl]?",
    r"malloc|calloc|realloc|free", r"__ctype_\w+", r"__errno_location", r"bcmp", r"__(mem|str)\w+_chk", r"__newlocale|__freelocale|newlocale|freelocale|uselocale",
    # the compiler's run-time library; a failed check prints and ends the process
    r"_Unwind_\w+", r"__cxa_\w+", r"__gxx_personality_v0", r"__stack_chk_fail", r"__assert_fail", r"abort", r"__libc_single_threaded", r"__dso_handle",
    r"__tls_get_addr", r"_GLOBAL_OFFSET_TABLE_", r"__\w+ti[234]", r"__udivti3|__umodti3|__divti3", r"__popcountdi2",
    r"__(asan|ubsan|lsan|sanitizer|tsan)_\w+", r"(vtable|typeinfo( name)?) for (std|__cxxabiv1|__gnu_cxx|YAML|fmt)::.*", r"operator (new|delete)(\[\])?\(.*",
    # containers, strings, streams in memory and paths as text
    r"std::(_Rb_tree|_Hash_bytes|__detail::|__throw_|exception|bad_|logic_error|runtime_error|out_of_range|invalid_argument|length_error|domain_error|overflow_error|range_error|nothrow|terminate|uncaught_exception|current_exception|rethrow_exception|__exception_ptr).*",
    r"std::(__cxx11::)?basic_(string|stringbuf|[io]?stringstream|ios|streambuf|istream|ostream|iostream)<.*", r"std::(istream|ostream|ios_base|locale|ctype|use_facet|has_facet|codecvt|num_\w+|operator<<|endl|flush|__ostream_insert|__istream_extract|getline|ws)\b.*",
    r"std::__cxx11::(basic_string|to_string|basic_\w*stringstream|basic_stringbuf)\b.*", r"(std::)?(from_chars|to_chars)\(.*", r"std::(from_chars|to_chars)\b.*",
    r"std::filesystem::__cxx11::path::.*", r"std::filesystem::__cxx11::(operator/|hash_value|swap).*", r"std::(chrono::)?_V2::error_category.*", r"std::_V2::\w+_category\(\)", r"std::(error_category|__cxx11::.*error_category).*",
    r"std::(ostream|istream)& std::.*", r"std::basic_ostream<.*", r"std::basic_istream<.*", r"(non-virtual|virtual) thunk to std::.*", r"(VTT|construction vtable) for std::.*",
    r"std::__once_\w+", r"__once_proxy",
    # libraries that only compute
    r"fmt::v\d+::(?!.*(print|println|vprint)\b).*", r"YAML::.*", r"re2::.*", r"XXH\w+",
    # what other compiler options leave as calls
    r"std::(allocator|char_traits|__new_allocator|basic_string_view)<.*", r"__gnu_cxx::(__\w*allocator|__to_xstring|__verbose_terminate_handler).*",
)))
FORBIDDEN = re.compile(r"std::basic_[io]?f(ile|stream).*|std::(__cxx11::)?basic_[io]?fstream.*|std::basic_filebuf.*|std::(cout|cerr|clog|cin)\b.*")

# Functions of wflow that end the process: nothing after them matters.
ENDS = re.compile(r"wflow::broken_invariant\(.*")

FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
RELOCATION = re.compile(r"^\s+([0-9a-f]+): (R_X86_64_\w+|R_AARCH64_\w+)\s+(.+?)(?:([+-])0x([0-9a-f]+))?$")
BRANCH = re.compile(r"^\s+[0-9a-f]+:\s+(?:bnd )?(?:call|jmp|j\w+|bl?|b\.\w+)\s+[0-9a-f]+ <([^+>]+)(?:\+0x[0-9a-f]+)?>")
SYMBOL = re.compile(r"^([0-9a-f]{16}) (.{7}) (\S+)\s+([0-9a-f]{16}) (?:\.hidden |\.internal |\.protected )?(.+)$")


class Graph:
    """Symbols as nodes; a local one is (object, name). Sections without a symbol at an address are nodes as well."""

    def __init__(self):
        self.edges = {}      # node -> set of nodes
        self.defined = {}    # global name -> node

    def add(self, archive, root):
        """Reads an archive; returns its function nodes."""
        listed = subprocess.run(["objdump", "-t", archive], capture_output=True, text=True, check=True).stdout
        tables, member = {}, ""
        for line in listed.splitlines():
            if line.endswith(("file format elf64-x86-64", "file format elf64-littleaarch64")):
                member = f"{archive}:{line.split(':')[0]}"
                tables[member] = {"at": {}, "local": set(), "size": {}}
            elif match := SYMBOL.match(line):
                address, flags, section, size, name = int(match[1], 16), match[2], match[3], int(match[4], 16), match[5]
                if section in ("*UND*", "*ABS*", "*COM*") or name == section:
                    continue
                node = (member, name) if flags[0] == "l" else name
                if flags[0] == "l":
                    tables[member]["local"].add(name)
                else:
                    self.defined.setdefault(name, node)
                tables[member]["at"].setdefault(section, []).append((address, node))
        for table in tables.values():
            for section, places in table["at"].items():
                places.sort(key=lambda place: place[0])
        functions = set()
        text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", archive], capture_output=True, text=True, check=True).stdout
        member, section, node, branch = "", "", None, None
        for line in text.splitlines():
            # A branch with a relocation shows the next instruction: only the relocation names its target.
            if branch is not None and not RELOCATION.match(line):
                self.edges[node].add(branch)
            branch = None
            if "file format elf64" in line:
                member, node = f"{archive}:{line.split(':')[0]}", None
            elif line.startswith("Disassembly of section "):
                section, node = line[len("Disassembly of section "):-1], None
            elif match := FUNCTION.match(line):
                name = match[2]
                node = (member, name) if name in tables[member]["local"] else name
                self.edges.setdefault(node, set())
                functions.add(node)
            elif node is not None and (match := RELOCATION.match(line)):
                offset = int(match[5] or "0", 16) * (-1 if match[4] == "-" else 1)
                self.edges[node].add(self.target(tables[member], member, match[3], offset + 4))
            elif node is not None and (match := BRANCH.match(line)):
                branch = (member, match[1]) if match[1] in tables[member]["local"] else match[1]
        # Tables of functions: vtables and arrays of pointers.
        text = subprocess.run(["objdump", "-r", archive], capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            if "file format elf64" in line:
                member = f"{archive}:{line.split(':')[0]}"
            elif line.startswith("RELOCATION RECORDS FOR ["):
                section = line[len("RELOCATION RECORDS FOR ["):-2]
            elif section.startswith((".data.rel", ".data", ".tdata")) and re.match(r"^[0-9a-f]{16} R_", line):
                address, _, value = line.split(None, 2)
                match = re.match(r"(.+?)(?:([+-])0x([0-9a-f]+))?$", value.strip())
                owner = self.at(tables[member], member, section, int(address, 16))
                offset = int(match[3] or "0", 16) * (-1 if match[2] == "-" else 1)
                self.edges.setdefault(owner, set()).add(self.target(tables[member], member, match[1], offset))
        return functions if root else set()

    @staticmethod
    def at(table, member, section, address):
        places = table["at"].get(section, [])
        index = bisect_right(places, address, key=lambda place: place[0]) - 1
        return places[index][1] if index >= 0 else (member, section)

    def target(self, table, member, name, offset):
        if name in table["local"]:
            return (member, name)
        return self.at(table, member, name, offset) if name.startswith(".") else name


def demangle(names):
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip(names, plain, strict=True))


def name_of(node):
    return node if isinstance(node, str) else node[1]


def chains(graph, roots):
    """From every symbol that is reached to the one that reached it first."""
    came_from = dict.fromkeys(roots)
    names = demangle(sorted({name_of(node) for node in graph.edges}))
    waiting = deque(roots)
    while waiting:
        node = waiting.popleft()
        if ENDS.fullmatch(names.get(name_of(node), "")):
            continue
        for after in graph.edges.get(node, ()):
            if after not in came_from:
                came_from[after] = node
                waiting.append(after)
    return came_from


def offences(graph, roots):
    came_from = chains(graph, roots)
    outside = sorted(node for node in came_from if isinstance(node, str) and node not in graph.defined and not node.startswith("."))
    plain = demangle(outside)
    found = []
    for node in outside:
        name = re.sub(r"@.*$", "", plain[node]).removeprefix("guard variable for ")
        if PERMITTED.fullmatch(name) and not FORBIDDEN.fullmatch(name):
            continue
        chain, at = [], came_from[node]
        while at is not None:
            chain.append(name_of(at))
            at = came_from[at]
        spoken = demangle(chain)
        found.append(f"{name}\n" + "".join(f"    called by {spoken[link][:160]}\n" for link in chain))
    return found, len(came_from), len(outside)


def check_myself():
    """The list forbids what it is there for."""
    forbidden = ("socket", "open", "open64", "read", "write", "stat", "unlink", "clock_gettime", "gettimeofday", "time", "fork", "clone", "execve", "waitpid",
                 "kill", "pthread_create", "getenv", "nanosleep", "poll", "fopen", "fopen64", "mmap", "sqlite3_step", "zmq_msg_send", "getpid", "getrandom", "rand",
                 "std::chrono::_V2::system_clock::now()", "std::chrono::_V2::steady_clock::now()", "std::filesystem::status(std::filesystem::__cxx11::path const&)",
                 "std::filesystem::current_path[abi:cxx11]()", "std::thread::_M_start_thread(x)", "std::condition_variable::wait(x)", "std::random_device::_M_getval()",
                 "std::basic_ifstream<char, std::char_traits<char> >::close()", "std::basic_filebuf<char, std::char_traits<char> >::basic_filebuf()", "std::cout",
                 "std::__basic_file<char>::is_open() const", "wflow::read_file(x)", "wflow::log::write(x)")
    return [f"machines_link_test.py permits {name}" for name in forbidden if PERMITTED.fullmatch(name) and not FORBIDDEN.fullmatch(name)]


def check_graph(graph):
    """A function of which we know that it asks the file system, two calls away, is caught."""
    known = [name for name, plain in demangle(sorted(name for name in graph.defined)).items() if plain.startswith("wflow::specs::locate_library(")]
    if any("std::filesystem::status" in offence for offence in offences(graph, known)[0]):
        return []
    return ["machines_link_test.py: does not follow the calls of wflow::specs::locate_library(), which looks for a file"]


def main():
    build = Path(sys.argv[1])
    problems = check_myself()
    graph, roots = Graph(), set()
    for name in ROOTS:
        roots |= graph.add(str(build / name), True)
    for name in OTHERS:
        graph.add(str(build / name), False)
    problems += check_graph(graph)
    if len(roots) < 500:
        problems.append(f"machines_link_test.py: the machines' libraries have only {len(roots)} functions")
    found, reached, outside = offences(graph, roots)
    for problem in problems + found:
        print(problem)
    print(f"{len(roots)} functions of the machines, {reached} symbols reached, {outside} outside of wflow, {len(problems) + len(found)} offences")
    return 1 if problems or found else 0


if __name__ == "__main__":
    sys.exit(main())
