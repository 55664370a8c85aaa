"""A table in Markdown whose rows are shown as they are measured."""
import sys


class Table:
    def __init__(self, *columns):
        self._lines = []
        self.add(*columns)
        self.add(*["---"] * len(columns))

    def add(self, *cells):
        self._lines.append("| " + " | ".join(cells) + " |")
        print(self._lines[-1], file=sys.stderr, flush=True)

    def text(self):
        return "\n".join(self._lines) + "\n"

    def write(self, path):
        """On standard output and, where a path is given, into that file."""
        page = self.text()
        print(page)
        if path:
            path.write_text(page)
