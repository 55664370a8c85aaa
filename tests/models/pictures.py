"""Pictures of all formats that ImageDecoder reads, made by Pillow and by hand, for test_image_decoder.py and tests/tools."""
import io
import struct
import zlib

import numpy
from PIL import Image

SIZES = ((1, 1), (7, 5), (33, 18))


def noise(mode, size, seed=1):
    """Smooth colours with noise on them, so that lossy formats have something of both."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    rng = numpy.random.default_rng([seed, *size, bands])
    y, x = numpy.mgrid[: size[1], : size[0]]
    planes = [(x * (3 + k) + y * (5 - k) + rng.integers(0, 40, x.shape)) % 256 for k in range(bands)]
    array = numpy.stack(planes, -1).astype("uint8")
    if mode == "1":
        return Image.fromarray(array[:, :, 0]).convert("1")
    if mode == "P":
        palette = numpy.random.default_rng(9).integers(0, 256, 768).astype("uint8")
        picture = Image.frombytes("P", size, array.tobytes())
        picture.putpalette(palette.tobytes())
        return picture
    return Image.frombytes(mode, size, array.tobytes())


def saved(picture, form, **options):
    with io.BytesIO() as file:
        picture.save(file, format=form, **options)
        return file.getvalue()


# ------------------------------------------------------------------------------------------------------- by Pillow

JPEG = [("L", {}), ("RGB", {}), ("RGB", {"progressive": True}), ("RGB", {"subsampling": 0, "quality": 95}), ("RGB", {"subsampling": 1}),
        ("RGB", {"subsampling": 2, "quality": 20, "optimize": True}), ("L", {"progressive": True}), ("CMYK", {}),
        ("RGB", {"restart_marker_blocks": 1})]
PNG = [("1", {}), ("L", {}), ("LA", {}), ("P", {}), ("RGB", {}), ("RGBA", {}), ("P", {"bits": 8, "transparency": 3}), ("RGB", {"transparency": (1, 2, 3)})]
TIFF = [(mode, {"compression": codec}) for codec in (None, "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK")]
TIFF += [("1", {"compression": codec}) for codec in ("group3", "group4", "tiff_ccitt")]
TIFF += [(mode, {"compression": "jpeg"}) for mode in ("L", "RGB")] + [("YCbCr", {"compression": "jpeg"})]
TIFF += [("RGB", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}), ("RGB", {"big_tiff": True})]
TIFF += [(mode, {"tiffinfo": {274: way}}) for mode in ("L", "RGB") for way in range(1, 9)]
WEBP = [("RGB", {}), ("RGBA", {}), ("RGB", {"lossless": True}), ("RGBA", {"lossless": True}), ("RGB", {"quality": 5}), ("RGBA", {"exact": True, "lossless": True})]
JPEG2000 = [("L", {}), ("LA", {}), ("RGB", {}), ("RGBA", {}), ("RGB", {"no_jp2": True}), ("RGB", {"irreversible": True, "quality_layers": [20]}),
            ("RGB", {"tile_size": (16, 16)}), ("RGB", {"mct": 0})]
BMP = [(mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA")]
PNM = [(mode, {}) for mode in ("1", "L", "RGB")]
BY_PILLOW = {"JPEG": JPEG, "PNG": PNG, "TIFF": TIFF, "WEBP": WEBP, "JPEG2000": JPEG2000, "BMP": BMP, "PPM": PNM}


def by_pillow(form):
    """(name, bytes) of each file of a format."""
    for mode, options in BY_PILLOW[form]:
        for size in SIZES:
            fitting = options | ({"num_resolutions": 1} if form == "JPEG2000" and min(size) < 16 else {})  # more need more pixels
            yield f"{form} {mode} {options} {size}", saved(noise(mode, size), form, **fitting)


# --------------------------------------------------------------------------------------------------------- by hand

def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def png(samples, bits, kind, interlaced=False, palette=b"", more=b""):
    """A PNG of an array (height, width, channels) of integers."""
    height, width, _ = samples.shape
    data = b""
    for x0, y0, dx, dy in ADAM7 if interlaced else ((0, 0, 1, 1),):
        part = samples[y0::dy, x0::dx]
        if part.size == 0:
            continue
        flat = part.reshape(part.shape[0], -1)
        if bits == 16:
            rows = flat.astype(">u2").view("uint8").reshape(part.shape[0], -1)
        else:
            unpacked = numpy.unpackbits(flat.astype("uint8")[:, :, None], axis=2)[:, :, 8 - bits :]
            rows = numpy.packbits(unpacked.reshape(part.shape[0], -1), axis=1)
        data += b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    chunks = png_chunk(b"IHDR", header) + (png_chunk(b"PLTE", palette) if palette else b"") + more
    return b"\x89PNG\r\n\x1a\n" + chunks + png_chunk(b"IDAT", zlib.compress(data)) + png_chunk(b"IEND", b"")


def pngs():
    rng = numpy.random.default_rng(4)
    palette = rng.integers(0, 256, 768).astype("uint8").tobytes()
    for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for bits in depths:
            for interlaced in (False, True):
                for width, height in SIZES:
                    samples = rng.integers(0, 1 << bits, (height, width, PNG_CHANNELS[kind]))
                    yield f"PNG {kind} {bits} {interlaced} {width}x{height}", png(samples, bits, kind, interlaced, palette if kind == 3 else b"")


def bmp(width, height, bits, data, packing=0, palette=b"", masks=b"", header=40):
    offset = 14 + header + len(masks) + len(palette)
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, packing, len(data), 0, 0, len(palette) // 4, 0)
    return struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset) + info + masks + bytes(header - 40) + palette + data


def bmps():
    rng = numpy.random.default_rng(5)
    palette = b"".join(struct.pack("4B", *rng.integers(0, 256, 3), 0) for _ in range(256))
    for width, height in SIZES:
        for bits in (1, 4, 8, 16, 24, 32):
            stride = (width * bits + 31) // 32 * 4
            data = rng.integers(0, 256, stride * height).astype("uint8").tobytes()
            colours = palette[: 4 << bits] if bits <= 8 else b""
            for sign in (1, -1):
                yield f"BMP {bits} {sign} {width}x{height}", bmp(width, sign * height, bits, data, palette=colours)
        data = rng.integers(0, 256, (width * 16 + 31) // 32 * 4 * height).astype("uint8").tobytes()
        yield f"BMP 565 {width}x{height}", bmp(width, height, 16, data, 3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
        core = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 26) + struct.pack("<IHHHH", 12, width, height, 1, 24)
        yield f"BMP OS/2 {width}x{height}", core + rng.integers(0, 256, (3 * width + 3) // 4 * 4 * height).astype("uint8").tobytes()
        for packing, bits in ((1, 8), (2, 4)):
            yield f"BMP RLE{bits} {width}x{height}", bmp(width, height, bits, runs(rng, width, height, bits), packing, palette[: 4 << bits])


def runs(rng, width, height, bits):
    """A run-length picture: each row a literal where it is long enough for one, then runs."""
    data = b""
    for _ in range(height):
        left = width
        if left >= 5:
            count = 5
            size = count if bits == 8 else 3
            data += bytes([0, count]) + rng.integers(0, 256, size).astype("uint8").tobytes() + bytes(size % 2)
            left -= count
        while left > 0:
            count = int(rng.integers(1, left + 1))
            data += bytes([count, int(rng.integers(0, 256))])
            left -= count
        data += b"\0\0"
    return data + b"\0\1"


def pnms():
    rng = numpy.random.default_rng(6)
    for width, height in SIZES:
        bits = rng.integers(0, 2, (height, width))
        yield f"P1 {width}x{height}", b"P1\n# a comment\n%d %d\n" % (width, height) + b"\n".join(b" ".join(b"%d" % v for v in row) for row in bits) + b"\n"
        for top in (1, 7, 100, 255):
            for kind, channels in ((2, 1), (3, 3)):
                samples = rng.integers(0, top + 1, (height, width * channels))
                header = b" %d\t%d # a comment\n%d\n" % (width, height, top)
                yield f"P{kind} {top} {width}x{height}", b"P%d" % kind + header + b"\n".join(b" ".join(b"%d" % v for v in row) for row in samples) + b"\n"
                yield f"P{kind + 3} {top} {width}x{height}", b"P%d" % (kind + 3) + header + samples.astype("uint8").tobytes()
        samples = rng.integers(0, 1000, (height, width * 3))
        yield f"P6 999 {width}x{height}", b"P6 %d %d 999\n" % (width, height) + samples.astype(">u2").tobytes()


def tiff(width, height, tags, blocks, order="<"):
    """A TIFF of the given tags ({number: (type, values)}) and strips or tiles; 273 and 279, or 324 and 325, are filled in."""
    tiled = 322 in tags
    tags = {256: (4, [width]), 257: (4, [height])} | tags
    tags |= {324 if tiled else 273: (4, [0] * len(blocks)), 325 if tiled else 279: (4, [len(block) for block in blocks])}
    form = {3: "H", 4: "I"}
    start = 8 + 2 + 12 * len(tags) + 4
    for _ in range(2):  # once for the lengths, once with the offsets
        entries, extra = b"", b""
        for number, (kind, values) in sorted(tags.items()):
            data = struct.pack(f"{order}{len(values)}{form[kind]}", *values)
            place = data.ljust(4, b"\0")
            if len(data) > 4:
                place = struct.pack(f"{order}I", start + len(extra))
                extra += data
            entries += struct.pack(f"{order}HHI", number, kind, len(values)) + place
        begin, offsets = start + len(extra), []
        for block in blocks:
            offsets.append(begin)
            begin += len(block)
        tags[324 if tiled else 273] = (4, offsets)
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8)
    return head + struct.pack(f"{order}H", len(tags)) + entries + bytes(4) + extra + b"".join(blocks)


def halved_chroma(y, cb, cr):
    """The bytes of YCbCr samples: for each 2 x 2 pixels four of `y`, then one of `cb` and of `cr`."""
    luma = y.reshape(y.shape[0] // 2, 2, -1, 2).transpose(0, 2, 1, 3).reshape(*cb.shape, 4)
    return numpy.concatenate([luma, cb[:, :, None], cr[:, :, None]], 2).astype("uint8").tobytes()


def rgb_of_halved_chroma(y, cb, cr):
    """What libtiff makes of YCbCr: in 16 bits behind the point, each chroma sample for 2 x 2 pixels."""
    cb, cr = (plane.repeat(2, 0).repeat(2, 1) - 128 for plane in (cb, cr))
    red, blue = y + ((91881 * cr + 32768) >> 16), y + ((116130 * cb + 32768) >> 16)
    green = y + ((-22553 * cb - 46802 * cr + 32768) >> 16)
    return numpy.stack([red, green, blue], -1).clip(0, 255).astype("uint8")


def tiffs():
    """Tiles, planes apart, sixteen and few bits, both byte orders, premultiplied alpha, YCbCr; with the pixels where Pillow misreads them."""
    rng = numpy.random.default_rng(7)
    for width, height in SIZES:
        for order in "<>":
            for bits in (8, 16):
                array = rng.integers(0, 1 << bits, (height, width, 3)).astype(f"{order}u{bits // 8}")
                plain = {258: (3, [bits] * 3), 259: (3, [1]), 262: (3, [2]), 277: (3, [3])}
                yield f"TIFF {order} {bits} {width}x{height}", tiff(width, height, plain | {278: (4, [height])}, [array.tobytes()], order)
                apart = [array[:, :, k].tobytes() for k in range(3)]
                by_plane = tiff(width, height, plain | {278: (4, [height]), 284: (3, [2])}, apart, order)
                yield f"TIFF apart {order} {bits} {width}x{height}", by_plane, (array >> (bits - 8)).astype("uint8")
                full = numpy.zeros((-(-height // 16) * 16, -(-width // 16) * 16, 3), array.dtype)
                full[:height, :width] = array
                tiles = [full[y : y + 16, x : x + 16].tobytes() for y in range(0, full.shape[0], 16) for x in range(0, full.shape[1], 16)]
                yield f"TIFF tiles {order} {bits} {width}x{height}", tiff(width, height, plain | {322: (4, [16]), 323: (4, [16])}, tiles, order)
        for bits in (2, 4):
            rows = rng.integers(0, 256, ((width * bits + 7) // 8) * height).astype("uint8").tobytes()
            for photometric in (0, 1):
                tags = {258: (3, [bits]), 259: (3, [1]), 262: (3, [photometric]), 278: (4, [height])}
                yield f"TIFF {photometric} {bits} {width}x{height}", tiff(width, height, tags, [rows])
        rgba = rng.integers(0, 256, (height, width, 4)).astype("uint8")
        tags = {258: (3, [8] * 4), 259: (3, [1]), 262: (3, [2]), 277: (3, [4]), 278: (4, [height]), 338: (3, [1])}
        yield f"TIFF premultiplied {width}x{height}", tiff(width, height, tags, [rgba.tobytes()])
        tags = {258: (3, [8] * 3), 259: (3, [8]), 262: (3, [6]), 277: (3, [3]), 530: (3, [2, 2])}  # deflated: libtiff 4.5 misreads small tiles that are not
        for kind, side in (("strips", (4, -(-width // 2) * 2)), ("tiles", (16, 16))):
            rows, columns = (-(-size // at) * at for size, at in ((height, 16 if kind == "tiles" else 2), (width, side[1])))
            y = rng.integers(0, 256, (rows, columns))
            cb, cr = rng.integers(0, 256, (2, rows // 2, columns // 2))
            blocks = [zlib.compress(halved_chroma(y[i : i + side[0], j : j + side[1]], *(plane[i // 2 : (i + side[0]) // 2, j // 2 : (j + side[1]) // 2] for plane in (cb, cr))))
                      for i in range(0, rows, side[0]) for j in range(0, columns, side[1])]
            sizes = {322: (4, [16]), 323: (4, [16])} if kind == "tiles" else {278: (4, [4])}
            yield f"TIFF YCbCr {kind} {width}x{height}", tiff(width, height, tags | sizes, blocks), rgb_of_halved_chroma(y, cb, cr)[:height, :width]


def animation(size=(20, 11)):
    """A WebP animation of two frames."""
    return saved(noise("RGB", size), "WEBP", save_all=True, append_images=[noise("RGB", size, 2)], lossless=True)


# ------------------------------------------------------------------------------------------------------------ damage

def small_ones():
    """(format, bytes): a few small files of each, from which damaged ones are made."""
    for form, rows in BY_PILLOW.items():
        for mode, options in rows[:: 1 + len(rows) // 8]:
            yield form, saved(noise(mode, (17, 12)), form, **options)
    yield "JPEG", saved(noise("CMYK", (17, 12)), "JPEG")
    yield "WEBP", animation()
    for maker, form in ((bmps, "BMP"), (pnms, "PPM"), (tiffs, "TIFF"), (pngs, "PNG")):
        rows = [data for name, data, *_ in maker() if "7x5" in name]
        yield from ((form, data) for data in rows[:: 1 + len(rows) // 8])


def with_sums(data):
    """A PNG's chunks with the check sums that they should have, as far as there are chunks."""
    fixed, at = data[:8], 8
    while at + 12 <= len(data):
        length = min(struct.unpack(">I", data[at : at + 4])[0], len(data) - at - 12)
        fixed += data[at : at + 4] + data[at + 4 : at + 8 + length] + struct.pack(">I", zlib.crc32(data[at + 4 : at + 8 + length]))
        at += 12 + length
    return fixed + data[at:]


def damaged(data, rng):
    """A copy with one kind of damage; of a PNG, every other time, with check sums that fit."""
    copy = damaged_bytes(data, rng)
    return with_sums(copy) if data.startswith(b"\x89PNG") and rng.integers(0, 2) else copy


def damaged_bytes(data, rng):
    bytes_ = bytearray(data)
    kind = rng.integers(0, 5)
    head = min(len(bytes_), 96)
    if kind == 0:
        del bytes_[int(rng.integers(0, len(bytes_))) :]
    elif kind == 1:
        for _ in range(int(rng.integers(1, 4))):
            bytes_[int(rng.integers(0, len(bytes_)))] ^= 1 << int(rng.integers(0, 8))
    elif kind == 2:  # sizes stand in the header
        at = int(rng.integers(0, head))
        word = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\xff\xff", b"\0\1\0\0")[int(rng.integers(0, 5))]
        bytes_[at : at + 4] = word if rng.integers(0, 2) else word[::-1]
    elif kind == 3:
        bytes_[int(rng.integers(0, head))] = int(rng.integers(0, 256))
    else:
        begin = int(rng.integers(0, len(bytes_)))
        end = min(len(bytes_), begin + int(rng.integers(1, 16)))
        bytes_[begin:end] = bytes_[begin:end] * 2 if rng.integers(0, 2) else b""
    return bytes(bytes_)
