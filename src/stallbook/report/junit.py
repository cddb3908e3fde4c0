"""A check as JUnit XML, the form of test results that pipelines read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as Xml

from stallbook.check import Checked

__all__ = ["dumps"]

NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold at all."""
SUITE: Final = "stallbook check"


def dumps(c: Checked, sentences: Sequence[str], context: str) -> str:
    """One suite with a test case a check: failed, or skipped where the runs cannot tell, else passed."""
    counts = {"tests": len(c.rows), "failures": len(c.of("failed")), "errors": 0}
    root = Xml.Element("testsuites", {"name": SUITE, **{key: str(n) for key, n in counts.items()}})
    suite = Xml.SubElement(root, "testsuite", {"name": SUITE, **{key: str(n) for key, n in counts.items()}})
    suite.set("skipped", str(len(c.of("unresolved"))))
    properties = Xml.SubElement(suite, "properties")
    for name, side in (("run", c.runs), ("against", c.against)):
        for s in side:
            Xml.SubElement(properties, "property", {"name": name, "value": _text(s.path)})
    for row, sentence in zip(c.rows, sentences, strict=True):
        case = Xml.SubElement(suite, "testcase", {"classname": f"stallbook.{row.kind}", "name": _text(row.name)})
        if row.status != "passed":
            kind = "failure" if row.status == "failed" else "skipped"
            told = Xml.SubElement(case, kind, {"message": _text(sentence)})
            told.text = _text(f"{sentence}\n{context}")
            if kind == "failure":
                told.set("type", row.kind)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return NOT_XML.sub("?", text)
