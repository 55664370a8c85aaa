"""WordPiece, the tokenizer of BERT without capitals: from sentences to numbers of a vocabulary's lines."""
import unicodedata

import numpy as np


class WordPiece:
    def __init__(self, path):
        self.numbers = {word: at for at, word in enumerate(path.read_text("utf-8").split("\n")) if word}

    def pieces(self, word):
        """The longest known beginning, then the longest known beginnings of the rest."""
        found, at = [], 0
        while at < len(word):
            for end in range(len(word), at, -1):
                piece = ("##" if at else "") + word[at:end]
                if piece in self.numbers:
                    break
            else:
                return ["[UNK]"]
            found.append(piece)
            at = end
        return found

    def numbers_of(self, sentence, most):
        letters = [c for c in unicodedata.normalize("NFD", sentence.lower()) if unicodedata.category(c) != "Mn"]
        spaced = "".join(c if c.isalnum() else " " if c.isspace() else f" {c} " for c in letters)
        pieces = [piece for word in spaced.split() for piece in self.pieces(word)]
        return [self.numbers[piece] for piece in ("[CLS]", *pieces[:most - 2], "[SEP]")]

    def batch(self, sentences, most=64):
        """{"input_ids", "attention_mask"}, int64 [sentences, the longest one's pieces]."""
        rows = [self.numbers_of(sentence, most) for sentence in sentences]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for row, to in zip(rows, ids):
            to[:len(row)] = row
        return {"input_ids": ids, "attention_mask": (np.arange(ids.shape[1]) < np.array([[len(row)] for row in rows])).astype(np.int64)}
