"""Check that a compiled C kernel does nothing but compute.

The text of a source can hide a call, but the symbols of the object file show it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_REAL = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax "
    "fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter "
    "nexttoward pow remainder remquo rint round roundeven scalbln scalbn significand sin sincos sinh sqrt tan tanh tgamma trunc "
    "cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj creal csin csinh csqrt ctan ctanh"
).split()
EXTERNAL = frozenset(
    "malloc calloc realloc free aligned_alloc posix_memalign memcpy memmove memset memcmp memchr mempcpy strlen strcmp strncmp "
    "strcpy strncpy strchr strrchr qsort bsearch abs labs llabs div ldiv lldiv __assert_fail __stack_chk_fail "
    "__memcpy_chk __memmove_chk __memset_chk __mempcpy_chk __strcpy_chk __strncpy_chk _GLOBAL_OFFSET_TABLE_".split()
) | {name + kind for name in _REAL for kind in ("", "f", "l")}
"""Functions of libc and libm that a kernel may call: memory functions, and arithmetic on their arguments."""
_VECTOR = re.compile(r"_ZGV[a-z][NM]\d+[vlu]+_(\w+)|__(\w+)_finite")
"""Names of libm's vector functions, and of its functions for finite numbers only. A group of the match is the name of
the scalar function.
"""
_HELPERS = re.compile(
    r"__[a-z]+[hsdxtb]f[hsdxtb]?[fi]?\d?|__(?:u?div|u?mod|mul|u?divmod|ashl|ashr|lshr|neg|ffs|clz|ctz|popcount)[sdt]i[234]?"
)
"""Names of arithmetic functions that the compiler calls where the processor lacks an instruction."""
_SECTION = re.compile(
    r"|\.(?:text|data|bss|rodata|rela?|comment|note|eh_frame|symtab|strtab|shstrtab|group|llvm_addrsig|debug_\w+)(?:\..*)?"
)
_INSTRUCTION = re.compile(
    r"\t(rdtscp?|rdpmc|rdrand|rdseed|rdpid|syscall|sysenter|int|cpuid|xgetbv|[rw]d?[rw]?[fg]sbase|wrpkru|rdpkru|in|out|hlt"
    r"|rdpru|tpause|umonitor|umwait|monitorx|mwaitx|popf|std(?=[ \t]*$)"
    r"|svc|hvc|smc|mrs|msr|isb)[bwlq]?(?:[ \t]|$)|(%[fg]s:)(?!0x28\b)",
    re.MULTILINE,
)
"""Instructions that no kernel may have: they read a clock or a counter, wait for a time, draw random numbers, make
system calls, set flags that a caller relies on (the direction of copies, alignment checks), or read thread-local
memory.

The one allowed read of thread-local memory is the guard of the stack, at 0x28.
"""
_COMPUTED = re.compile(r"\t(?:\w+ )?(?:(?:call|jmp)[wlq]?[ \t]+\*|bl?r[ab]*z?[ \t]+x\d)")
"""Matches a call or jump to a computed address, which could lie in the middle of an instruction."""
_AT = re.compile(r"^[ \t]*([0-9a-f]+):\t", re.MULTILINE)
_TARGET = re.compile(r"\t(?:\w+ )?(?:call|j[a-z]+|loopn?[ez]?|xbegin)[wlq]?[ \t]+([0-9a-f]+)\b")
_DISASSEMBLE_S = 30.0
_MARKER = re.compile(r'# \d+ "[^"\n]*"(?: ([12])\b)?')
_ASSEMBLER_NAME = re.compile(r'\)\s*(?:__asm__|__asm|asm)\s*\(\s*((?:"[^"]*"\s*)+)\)')
_DECLARED = re.compile(r"\bextern\b[^;{}()=]*?\b(\w+)\s*\(")


def complaint(path: Path, search: str) -> tuple[str, str]:
    """Return the first rule that a compiled object breaks, and a message about it; two empty texts if the object breaks
    no rule.

    Tools such as the disassembler are searched in the folders of ``search``. If the preprocessed source (``.i``) is in
    the object's folder, it is checked, too.
    """
    declared = next(_declared(path.with_suffix(".i")), None)
    if declared is not None:
        return declared
    try:
        with path.open("rb") as stream:
            found = next(_symbols(ELFFile(stream)), None)
    except (ELFError, ValueError, KeyError, UnicodeDecodeError) as error:
        return "object", f"the compiled object can not be read: {error}"
    return found or _instructions(path, search)


def static_bytes(path: Path) -> int:
    """Return the bytes of memory whose contents a compiled object keeps from one call to the next."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        sections = sum(
            section["sh_size"]
            for section in elf.iter_sections()
            if section["sh_flags"] & SH_FLAGS.SHF_WRITE and not section.name.startswith(".data.rel.ro")
        )
        tables = (table for table in elf.iter_sections() if isinstance(table, SymbolTableSection))
        symbols = (symbol for table in tables for symbol in table.iter_symbols())
        # common symbols are in no section of the object, because the linker reserves their memory
        return int(sections + sum(symbol["st_size"] for symbol in symbols if symbol["st_shndx"] == "SHN_COMMON"))


def _declared(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (rule, message) for each forbidden external function that the kernel's own lines declare. A declaration is
    enough, even without a call.
    """
    if not path.is_file():
        return
    depth, lines = 0, []  # depth of included files at this line
    for line in path.read_text("utf-8", "replace").splitlines():
        marker = _MARKER.match(line)
        if marker is not None:
            depth += {"1": 1, "2": -1}.get(marker.group(1), 0)
        elif depth == 0:
            lines.append(line)
    text = "\n".join(lines)
    renamed = ["".join(found.split('"')[1::2]) for found in _ASSEMBLER_NAME.findall(text)]
    plain = [name for name in _DECLARED.findall(text) if not re.search(rf"\b{name}\s*\([^;{{}}]*\)\s*{{", text)]
    for name in (*renamed, *plain):
        if not _allowed(name):
            yield "external", f"a kernel may not declare {name[:60]}: a kernel may only compute on its arguments"


def _symbols(elf: ELFFile) -> Iterator[tuple[str, str]]:
    """Yield (rule, message) for each section or symbol of the object that a kernel may not have."""
    executable = set()
    for number, section in enumerate(elf.iter_sections()):
        if not _SECTION.fullmatch(section.name):
            yield "section", f"the kernel puts something into section {section.name[:60]!r}"
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
            executable.add(number)
            if section.name == ".note.GNU-stack":
                yield (
                    "section",
                    "the kernel needs a stack that can be executed: the address of a nested function is taken",
                )
    for table in elf.iter_sections():
        for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
            kind, place = symbol["st_info"]["type"], symbol["st_shndx"]
            if kind == "STT_OBJECT" and place in executable:
                yield "section", f"{symbol.name[:60]} is data among the instructions"
            if kind in ("STT_LOOS", "STT_GNU_IFUNC"):
                yield "external", f"{symbol.name[:60]} is chosen when the kernel is loaded"
            if place == "SHN_UNDEF" and symbol.name and not _allowed(symbol.name):
                yield "external", f"a kernel may not use {symbol.name[:60]}: a kernel may only compute on its arguments"


def _allowed(name: str) -> bool:
    vector = _VECTOR.fullmatch(name)
    plain = next(filter(None, vector.groups()), "") if vector else name
    return plain in EXTERNAL or (vector is None and _HELPERS.fullmatch(name) is not None)


def misdirected(path: Path, search: str) -> tuple[str, str]:
    """Check that each jump of a linked x86_64 object goes to the first byte of an instruction.

    Return the rule ``jump`` and a message about the first jump that goes elsewhere; two empty texts if no jump does.
    """
    shown = _disassembled(path, search)
    firsts = set(_AT.findall(shown))
    if any(target not in firsts for target in _TARGET.findall(shown)):
        return "jump", "the kernel calls or jumps into the middle of an instruction"
    return "", ""


def _instructions(path: Path, search: str) -> tuple[str, str]:
    shown = _disassembled(path, search)
    found = _INSTRUCTION.search(shown)
    if found:
        return "instruction", f"a kernel may not use {found.group(1) or found.group(2)}"
    if _COMPUTED.search(shown):
        return "jump", "the kernel calls or jumps to an address that it computes: call functions by their names"
    return "", ""


def _disassembled(path: Path, search: str) -> str:
    """Return the disassembly of an object file as text; empty if neither objdump nor llvm-objdump is installed."""
    program = shutil.which("objdump", path=search) or shutil.which("llvm-objdump", path=search)
    if program is None:
        return ""
    command = [program, "-d", "--no-show-raw-insn", path.name]
    environment = {"PATH": search, "LC_ALL": "C"}
    shown = subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, timeout=_DISASSEMBLE_S, check=False
    )
    return shown.stdout.decode(errors="replace")
