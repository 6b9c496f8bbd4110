"""The code blocks of a document, and a folder in which to follow it as a reader would.

A block's first word is its language, its second, where given, the file that it is. A `console` block is typed at a
shell: lines after `$ ` are commands, the others what they print, with `…` for what differs from run to run. A
`terminal` block is the same at a terminal, where what stands behind a question, `[y/N]: `, is typed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from placet.testing.port import free_port
from tests.house.source_tree import ROOT
from tests.terminal import at_a_terminal

READY_SECONDS = 60
POLL_SECONDS = 0.05
COMMAND_SECONDS = 60
QUESTION = "[y/N]: "

_BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SERVER = re.compile(r"\s*(\w+=\S+ )*placet (dev|serve)\b")
_CONNECTOR = re.compile(r"\s*placet connect\b.* --port (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `file` is "" where it is not a file."""

    language: str
    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a reader types, and what the document says that it prints."""

    line: str
    output: str


def blocks(document: str) -> list[Block]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [Block(language=found[1], file=found[2] or "", text=found[3]) for found in _BLOCK.finditer(text)]


def commands(block: Block) -> list[Command]:
    """Of a console block. What stands before the first command is no output."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(line=line, output=output) for line, _, output in (part.partition("\n") for part in parts)]


def matches(expected: str, actual: str) -> bool:
    """Whether the output is as written, `…` standing for anything and blanks at ends of lines for nothing."""
    pattern = ".*".join(re.escape(part) for part in _trimmed(expected).split("…"))
    return re.fullmatch(pattern, _trimmed(actual), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def local_links(document: str) -> list[str]:
    """Targets of links into the repository, without their anchors."""
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [
        urlsplit(target).path
        for target in targets
        if not urlsplit(target).scheme and not target.startswith("#")
    ]


class Desk:
    """A folder where a document is followed: its files are written, its commands run, one server at a time, and as many
    connectors as it begins, on free ports in the place of those that it names. What is in `programs` goes before what
    is installed.
    """

    def __init__(self, folder: Path, *programs: Path) -> None:
        self.folder = folder
        self._server: subprocess.Popen[str] | None = None
        self._connectors: list[subprocess.Popen[str]] = []
        self._ports: dict[str, str] = {}
        self._log: IO[str] | None = None
        self._code = 0
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")}
        path = [*map(str, programs), str(Path(sys.executable).parent), kept["PATH"]]
        self._environment = kept | {
            "PATH": os.pathsep.join(path),
            "COLUMNS": "120",
            "PYTHONPATH": str(folder),
        }

    def follow(self, document: str) -> None:
        """Every block in order. Raises AssertionError for a command that prints something else."""
        for block in blocks(document):
            if block.file:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for command in commands(block):
                    self._type(command)
            elif block.language == "terminal":
                for command in commands(block):
                    self._type_at_a_terminal(command)

    def _type(self, command: Command) -> None:
        found = _CONNECTOR.match(command.line)
        if found is not None:
            self._ports[found[1]] = str(free_port())
        for written, actual in self._ports.items():
            command = Command(
                line=command.line.replace(written, actual), output=command.output.replace(written, actual)
            )
        if found is not None:
            self._connect(command)
            return
        if _SERVER.match(command.line):
            self._serve(command)
            return
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{command.line}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        self._code = done.returncode
        said = f"$ {command.line}\n{done.stdout}\nThe document says:\n{command.output}{self._server_said()}"
        assert matches(command.output, done.stdout), said

    def _type_at_a_terminal(self, command: Command) -> None:
        """Without colours, and so wide that nothing is folded."""
        answers = iter(re.findall(re.escape(QUESTION) + r"(.*)", command.output))
        line = ["bash", "-c", command.line]
        with at_a_terminal(line, self._environment | {"TERM": "dumb"}, self.folder) as terminal:
            said, asked = "", 0
            while part := terminal.read():
                said += part
                if said.count(QUESTION) > asked:
                    terminal.type(f"{next(answers)}\n")
                    asked += 1
            self._code = terminal.process.returncode
        told = f"$ {command.line}\n{said}\nThe document says:\n{command.output}{self._server_said()}"
        assert matches(command.output, said.replace("\r\n", "\n")), told

    def _serve(self, command: Command) -> None:
        """On any free port; what else runs on the machine is not the reader's."""
        self.close()
        self._log = (self.folder / "server.log").open("w+", encoding="utf-8")
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec env {command.line} --port 0"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        end = time.monotonic() + READY_SECONDS
        while self._server.poll() is None and "ready on" not in self._server_said():
            assert time.monotonic() < end, f"it is not ready{self._server_said()}"
            time.sleep(POLL_SECONDS)
        assert self._server.poll() is None, f"it has ended{self._server_said()}"
        assert self._is_ready(), f"it is not ready{self._server_said()}"

    def _connect(self, command: Command) -> None:
        """What it says is one line."""
        log = (self.folder / f"connector-{len(self._connectors)}.log").open("w", encoding="utf-8")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command.line}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self._connectors.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        said = f"$ {command.line}\n{line}{Path(log.name).read_text(encoding='utf-8')}"
        assert matches(command.output, line), f"{said}\nThe document says:\n{command.output}"

    def _is_ready(self) -> bool:
        asked = subprocess.run(
            ["placet", "health", "--wait", "5s"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            timeout=30,
        )
        return asked.returncode == 0

    def _server_said(self) -> str:
        return (
            "\nThe server says:\n" + (self.folder / "server.log").read_text(encoding="utf-8")
            if self._log
            else ""
        )

    def close(self) -> None:
        """End what runs."""
        for process in self._connectors:
            process.terminate()
        for process in self._connectors:
            process.wait(60)
            if process.stdout is not None:
                process.stdout.close()
        self._connectors.clear()
        if self._server is not None:
            self._server.terminate()
            self._server.wait(60)
            self._server = None
        (self.folder / ".placet" / "token").unlink(missing_ok=True)
        if self._log is not None:
            self._log.close()
            self._log = None
