"""Makes the unique symbols of an object file (STB_GNU_UNIQUE: variables of inline functions and templates, in yaml-cpp and libstdc++) plain global ones,
in place. objcopy, which then makes symbols local, leaves unique ones as they are.

usage: unique_symbols.py OBJECT
"""
import struct
import sys

SHT_SYMTAB, STB_GLOBAL, STB_GNU_UNIQUE = 2, 1, 10


def main(path):
    with open(path, "r+b") as file:
        body = bytearray(file.read())
        if body[:4] != b"\x7fELF" or body[4] != 2 or body[5] not in (1, 2):
            sys.exit(f"{path} is no 64-bit ELF file")
        order = "<" if body[5] == 1 else ">"
        (sections,) = struct.unpack_from(f"{order}Q", body, 0x28)
        size, count = struct.unpack_from(f"{order}HH", body, 0x3A)
        if count == 0:  # more than 65279 sections: the number stands in the first one's size
            (count,) = struct.unpack_from(f"{order}Q", body, sections + 0x20)
        for index in range(count):
            at = sections + index * size
            (kind,) = struct.unpack_from(f"{order}I", body, at + 4)
            if kind != SHT_SYMTAB:
                continue
            offset, length = struct.unpack_from(f"{order}QQ", body, at + 0x18)
            for symbol in range(offset, offset + length, 24):
                if body[symbol + 4] >> 4 == STB_GNU_UNIQUE:
                    body[symbol + 4] = STB_GLOBAL << 4 | body[symbol + 4] & 15
        file.seek(0)
        file.write(body)


main(sys.argv[1])
