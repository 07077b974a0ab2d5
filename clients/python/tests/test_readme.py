"""The examples of the pages run as they stand there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import textwrap
import unittest

from .kit import ROOT, Server

PAGES = ["clients/python/README.md", "docs/clients.md"]


class Examples(unittest.TestCase):
    def test_every_example_runs(self) -> None:
        server = Server()
        self.addCleanup(server.kill)
        for page in PAGES:
            examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
            self.assertTrue(examples, page)
            for example in examples:
                self.run_example(example.replace("http://127.0.0.1:7670", server.url))

    def run_example(self, example: str) -> None:
        tokens: list[int] = []

        async def work(token: int) -> None:
            tokens.append(token)

        names = {"work": work}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if "async with" in example:
                exec("async def main():\n" + textwrap.indent(example, "    "), names)
                asyncio.run(names["main"]())
            else:
                exec(example, names)
        self.assertTrue(tokens or "held with token" in printed.getvalue(), example)
