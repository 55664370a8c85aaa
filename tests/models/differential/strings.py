"""Strings: putting together, cutting, normalizing, matching, counting."""
import numpy

from .draw import operator


@operator("StringConcat")
def string_concat(draw):
    return draw.case([draw.strings(shape) for shape in draw.broadcasting(2, 3)])


@operator("StringSplit")
def string_split(draw):
    kind = draw.one("blank", "character", "word")
    if kind == "blank":
        pool = ("", " ", "a", "a b", "  a  b ", "a b c d", " é 漢", "one two  three")
        attributes = draw.some(delimiter="")
    else:
        pool = ("", ",", ",,", "a,b", ",a", "a,", "a,b,c,,d", "é,漢,x", "--", "a--b", "a---b--c")
        attributes = {"delimiter": "," if kind == "character" else "--"}
    attributes.update(draw.some(maxsplit=draw.int(1, 4)))
    return draw.case([draw.strings(draw.shape(0, 3, zero=0), *pool)], attributes, 2)


@operator("StringNormalizer")
def string_normalizer(draw):
    pool = ("a", "A", "monday", "Monday", "TUESDAY", "é", "É", "straße", "x y", "0")
    x = draw.strings(draw.one((draw.int(1, 6),), (1, draw.int(1, 6))), *pool)
    attributes = draw.some(case_change_action=draw.one("NONE", "LOWER", "UPPER"), is_case_sensitive=draw.int(0, 1))
    attributes["locale"] = "C.UTF-8"  # which every machine has
    if draw.maybe(0.7):
        attributes["stopwords"] = [draw.one(*pool) for _ in range(draw.int(1, 4))]
    return draw.case([x], attributes)


_PATTERNS = (r"", r"a", r"a*", r"(a|b)*c", r"[a-c]+", r"[^a-c]+", r"\d{2,3}", r"\w+@\w+\.com", r"a.c", r"(?:ab)?c", r"x{0}", r"a+?b", r"\.", r"é.*",
             r"[[:alpha:]]+", r"\s*\S+\s*", r"(ab|a)(c|bcd)", r"^abc$", r"a|b|", r"[\]\-x]*", r"\x41+", r"a{2}", r"(a*)*b", r"\babc\b")
_TEXTS = ("", "a", "aa", "aaab", "abc", "aabbc", "12", "1234", "me@home.com", "ac", "a\nc", "é", "éclair", "a c", " x ", "A", "AAA", "abcd", "]-x", ".")


@operator("RegexFullMatch")
def regex_full_match(draw):
    return draw.case([draw.strings(draw.shape(0, 3, zero=0.05), *_TEXTS)], {"pattern": draw.one(*_PATTERNS)})


@operator("Tokenizer", domain="com.microsoft")
def tokenizer(draw):
    attributes = {"mark": draw.int(0, 1), "pad_value": draw.one("", "#", "pad"), "mincharnum": draw.int(1, 3)}
    if draw.maybe():
        attributes["tokenexp"] = draw.one("[a-z]+", "a|ab", "a*", r"\w+", "[^ ]+", "b.|a", "(a|aa)+b|a")
    else:
        separators = [draw.one(" ", ",", "a", "ab", "[0-9]", "[ ,]+", "é") for _ in range(draw.int(1, 3))]
        attributes.update(draw.one({"separators": separators}, {"separators": [""], "mincharnum": 1}))
    pool = ("", " ", "a b", "abab aab", "a1b22c", "x, y,z", "éa é", "a", "  ab  ")
    return draw.case([draw.strings(draw.one((draw.int(1, 4),), (draw.int(1, 2), draw.int(1, 3))), *pool)], attributes)


@operator("TfIdfVectorizer")
def tf_idf(draw):
    shortest, words = draw.int(1, 2), draw.one("int32", "int64", "string")
    longest, tokens = shortest + draw.int(0, 1), ("a", "b", "c", "é") if words == "string" else (1, 2, 3, 4)
    grams = {1: set(), 2: set(), 3: set()}
    for length in range(1, longest + 1):
        for _ in range(draw.int(1, 4)):
            grams[length].add(tuple(draw.one(*tokens) for _ in range(length)))
    pool = [gram for length in sorted(grams) for gram in sorted(grams[length])]
    counts = [sum(len(gram) for gram in pool if len(gram) < length) for length in range(1, longest + 1)]
    attributes = {"min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": draw.int(0, 2), "mode": draw.one("TF", "IDF", "TFIDF"),
                  "ngram_counts": counts, "ngram_indexes": [int(i) for i in draw.rng.permutation(len(pool))]}
    attributes["pool_strings" if words == "string" else "pool_int64s"] = [token for gram in pool for token in gram]
    if draw.maybe():
        attributes["weights"] = [draw.real(0.1, 2) for _ in pool]
    shape = draw.one((draw.int(1, 9),), (draw.int(1, 3), draw.int(1, 9)))
    x = draw.strings(shape, *tokens, "z") if words == "string" else draw.values(shape, words, 0, 5)
    return draw.case([x], attributes)
