"""What only the collector of cycles finds: objects that hold each other when nobody holds them any more."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What asyncio leaves of each connection that it closes. A connection serves many runs, and an idle one is closed after
# seconds: on a slow machine in the middle of a block.
_TRANSPORT = "_SelectorSocketTransport"
OF_A_CONNECTION = (
    f"asyncio.selector_events.{_TRANSPORT} x1, method {_TRANSPORT}._read_ready__data_received x1"
)


@contextmanager
def left_behind() -> Iterator[list[str]]:
    """The cycles that the block has left, filled in at its end: each as the types of its members."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        kept = gc.garbage[:]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        garbage = gc.garbage[:]
        gc.garbage[:] = kept
        found += [each for each in map(_described, _cycles(garbage)) if each != OF_A_CONNECTION]
    finally:
        gc.set_debug(0)
        gc.enable()


def _cycles(objects: list[Any]) -> list[list[Any]]:
    """The strongly connected ones among them (Tarjan)."""
    by_id = {id(each): each for each in objects}
    links = {key: [id(r) for r in gc.get_referents(each) if id(r) in by_id] for key, each in by_id.items()}
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_ids: list[int] = []
    is_open: set[int] = set()
    cycles: list[list[Any]] = []
    for root in links:
        if root in numbers:
            continue
        path = [(root, iter(links[root]))]
        while path:
            node, following = path[-1]
            if node not in numbers:
                numbers[node] = lowest[node] = len(numbers)
                open_ids.append(node)
                is_open.add(node)
            for each in following:
                if each not in numbers:
                    path.append((each, iter(links[each])))
                    break
                if each in is_open:
                    lowest[node] = min(lowest[node], numbers[each])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    cut = open_ids.index(node)
                    members, open_ids[cut:] = open_ids[cut:], []
                    is_open.difference_update(members)
                    if len(members) > 1 or node in links[node]:
                        cycles.append([by_id[member] for member in members])
    return cycles


def _described(cycle: list[Any]) -> str:
    return ", ".join(sorted(f"{name} x{n}" for name, n in Counter(map(_name, cycle)).items()))


def _name(each: Any) -> str:
    kind = type(each)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    of = getattr(each, "__qualname__", "") or getattr(getattr(each, "f_code", None), "co_qualname", "")
    return f"{name} {of}".strip()
